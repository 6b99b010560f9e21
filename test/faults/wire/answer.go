package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// refusal returns the answer that an API server would give instead, according to the action.
func refusal(r *http.Request, do plan.Do, is plan.Request) *http.Response {
	status := statusOf(do, is)
	body, err := json.Marshal(status)
	if err != nil { // a Status can always be encoded
		panic(err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if do == plan.Throttle {
		header.Set("Retry-After", "1")
	}
	return &http.Response{
		StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func statusOf(do plan.Do, is plan.Request) metav1.Status {
	code, reason := http.StatusInternalServerError, metav1.StatusReasonInternalError
	switch do {
	case plan.Conflict:
		code, reason = http.StatusConflict, metav1.StatusReasonConflict
	case plan.Throttle:
		code, reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case plan.Unavailable:
		code, reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	case plan.Forbid:
		code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
	case plan.Invalid:
		code, reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	case plan.Gone:
		code, reason = http.StatusGone, metav1.StatusReasonExpired
	case plan.TimeoutAfterCommit:
		code, reason = http.StatusGatewayTimeout, metav1.StatusReasonTimeout
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  fmt.Sprintf("fault plan: %s of %s %q", do, is.Resource, is.Name),
		Reason:   reason, Code: int32(code),
		Details: &metav1.StatusDetails{Name: is.Name, Group: is.Group, Kind: is.Resource},
	}
	if do == plan.Throttle {
		status.Details.RetryAfterSeconds = 1
	}
	return status
}

// answer is an answer that the API server has given; for a streaming list, the state that it had reported.
type answer struct {
	signature string // equal for answers with the same content
	code      int
	body      []byte
}

// memory keeps answers of the API server to reads that a rule may want answered with something earlier.
type memory struct {
	mu   sync.Mutex
	seen map[string][]answer
}

// remembered is how many answers are kept for each request.
const remembered = 32

func (m *memory) add(key string, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[string][]answer{}
	}
	list := m.seen[key]
	if n := len(list); n > 0 && list[n-1].signature == a.signature {
		return
	}
	list = append(list, a)
	m.seen[key] = list[max(0, len(list)-remembered):]
}

// earlier returns the latest answer that differs from the present one.
func (m *memory) earlier(key, present string) (answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.seen[key]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].signature != present {
			return list[i], true
		}
	}
	return answer{}, false
}

// keyOf returns a key that is equal for requests that ask the same thing at different times.
func keyOf(r *http.Request) string {
	query := r.URL.Query()
	for _, moment := range []string{"resourceVersion", "resourceVersionMatch", "timeoutSeconds", "timeout", "allowWatchBookmarks"} {
		query.Del(moment)
	}
	return r.URL.Path + "?" + query.Encode() + " " + r.Header.Get("Accept")
}

// signatureOf distinguishes answers by the objects in them, not by the resource version of the list as a whole, which
// changes with everything.
func signatureOf(code int, body []byte) string {
	var is struct {
		Metadata metadata `json:"metadata"`
		Items    *[]struct {
			Metadata metadata `json:"metadata"`
		} `json:"items"`
	}
	switch {
	case code != http.StatusOK:
		return fmt.Sprint(code)
	case json.Unmarshal(body, &is) != nil:
		return string(body)
	case is.Items == nil && is.Metadata.UID == "":
		return string(body)
	case is.Items == nil:
		return is.Metadata.UID + "/" + is.Metadata.ResourceVersion
	}
	signature := "list"
	for _, item := range *is.Items {
		signature += " " + item.Metadata.UID + "/" + item.Metadata.ResourceVersion
	}
	return signature
}
