package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// checked makes a write of a run in check mode a dry run, so that the API server stores
// nothing, or refuses it if it cannot be a dry run.
func (x *exchange) checked(r *http.Request, body []byte) ([]byte, error) {
	x.dryRun = true
	query := r.URL.Query()
	query["dryRun"] = []string{metav1.DryRunAll}
	changed := *r.URL
	changed.RawQuery = query.Encode()
	r.URL = &changed
	if r.Method != http.MethodDelete || len(body) == 0 {
		return body, nil
	}
	// With a body, the API server ignores the query.
	options, err := deleteOptions(body)
	if err != nil {
		return nil, inCheckMode("a deletion whose options are not in JSON is refused")
	}
	options.DryRun = []string{metav1.DryRunAll}
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	return json.Marshal(options)
}

// checkable refuses the writes that cannot be dry runs.
func (x *exchange) checkable(r *http.Request) error {
	switch {
	case !x.s.CheckMode:
	case isConnection(x.info, "exec", "attach", "portforward", "proxy"):
		return inCheckMode(x.info.Subresource + " of " + x.info.Resource + " is refused, because it cannot be a dry run")
	case !x.info.IsResourceRequest, !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, r.Method):
		return inCheckMode(r.Method + " of " + x.info.Path + " is refused, because it cannot be a dry run")
	}
	return nil
}

// connects reports whether a request is for a connection other than a watch: it is not known
// what an aggregated API does with the bytes, for example on the console of a machine.
func connects(r *http.Request, info *request.RequestInfo) bool {
	return isUpgrade(r.Header) && info.Verb != "watch"
}

// inCheckMode returns the answer to a write that a run in check mode cannot make.
func inCheckMode(what string) error {
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		"the run is in check mode: "+what+"; let the task be skipped with \"when: not ansible_check_mode\"")
}

// deleteOptions reads the body of a deletion in JSON or in protobuf.
func deleteOptions(body []byte) (options metav1.DeleteOptions, err error) {
	return options, unpack(body, &options)
}

// unpack reads a body in JSON or in protobuf.
func unpack(body []byte, into interface{ Unmarshal(packed []byte) error }) error {
	packed, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !ok {
		return json.Unmarshal(body, into)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(packed); err != nil {
		return err
	}
	return into.Unmarshal(envelope.Raw)
}
