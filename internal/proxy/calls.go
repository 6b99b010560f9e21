package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Calls answers requests of a run to the operator itself, not to the API server. The
// modules of the collection rolewright.operator send them. It is called concurrently, only
// for the run of its [Grant], and not after the run's access is revoked.
type Calls interface {
	// About describes the run: the answer to GET /rolewright/v1/run.
	About() any
	// Names returns the names of the calls.
	Names() []string
	// Call answers a POST to /rolewright/v1/run/name. The body is as the client sent
	// it, and has at most 64 KiB. The answer is encoded as JSON. An error that is an
	// [apierrors.APIStatus] is answered with its code and message.
	Call(ctx context.Context, name string, body []byte) (answer any, err error)
}

// callsRoot is the path of requests to the operator itself, and begins those of calls. No
// API server has such a path.
const callsRoot = "/rolewright/v1/run"

// maxCall limits the body of a call, in bytes: enough for a status with many conditions.
const maxCall = 64 << 10

// isCall reports whether a request is for the operator itself.
func isCall(r *http.Request) bool {
	return r.URL.Path == "/rolewright" || strings.HasPrefix(r.URL.Path, "/rolewright/")
}

// answerCall answers a request for the operator itself.
func (x *exchange) answerCall(w http.ResponseWriter, r *http.Request) {
	answer, err := x.callOf(w, r)
	var data []byte
	if err == nil {
		data, err = json.Marshal(answer)
	}
	if err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			s := status.Status()
			err = refuse(int(s.Code), s.Reason, err.Error())
		}
		x.refused(w, err)
		return
	}
	x.code = http.StatusOK
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // a client that is gone needs no answer
}

// callOf makes the call that a request asks for.
func (x *exchange) callOf(w http.ResponseWriter, r *http.Request) (any, error) {
	calls := x.s.Calls
	if calls == nil {
		return nil, refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
			callsRoot+" is for runs: use the kubeconfig of the run (K8S_AUTH_KUBECONFIG)")
	}
	name, below := strings.CutPrefix(r.URL.Path, callsRoot+"/")
	method := http.MethodPost
	switch {
	case r.URL.Path == callsRoot:
		method = http.MethodGet
	case !below || !slices.Contains(calls.Names(), name):
		return nil, refuse(http.StatusNotFound, metav1.StatusReasonNotFound,
			"there is no such call: this operator has "+strings.Join(calls.Names(), ", ")+" below "+callsRoot)
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		return nil, refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "use "+method+" for "+r.URL.Path)
	}
	if method == http.MethodGet {
		return calls.About(), nil
	}
	body, err := readBody(w, r, maxCall, x.p.bodyTimeout, "the request is larger than "+strconv.Itoa(maxCall)+" bytes")
	if err != nil {
		return nil, err
	}
	if err := x.fence(); err != nil {
		return nil, err
	}
	return calls.Call(r.Context(), name, body)
}
