package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Request is one answered request of the audit log.
type Request struct {
	AuditID, Verb, RequestURI, UserAgent, Stage string
	User                                        struct{ Username string }
	ImpersonatedUser                            *struct{ Username string }
	ObjectRef                                   struct{ Resource, Namespace, Name, APIGroup, Subresource string }
	ResponseStatus                              struct{ Code int }
	RequestReceivedTimestamp, StageTimestamp    time.Time
	// ResponseObject is only set for custom resources.
	ResponseObject json.RawMessage

	// Sent is when the operator sent the request, as far as known; Received and Done are the API server's times.
	Sent, Received, Done Instant `json:"-"`
	// Replica is the operator that sent the request, if the fault proxy recorded it.
	Replica string `json:"-"`
}

// runnerAgent precedes the ID of the run in the User-Agent of its requests.
const runnerAgent = "fakerunner/"

// run returns the ID of the run that made a request; empty if no run did.
func (r *Request) run() string {
	_, id, ok := strings.Cut(r.UserAgent, runnerAgent)
	if !ok {
		return ""
	}
	id, _, _ = strings.Cut(id, " ")
	return id
}

// operator tells whether the operator itself made the request: it did if neither
// the campaign's client, nor a run, nor the control plane did.
func (r *Request) operator() bool {
	return r.run() == "" && !strings.HasPrefix(r.UserAgent, "campaign") && !strings.HasPrefix(r.UserAgent, "kube-") &&
		!strings.HasPrefix(r.User.Username, "system:kube-") && !strings.HasPrefix(r.User.Username, "system:serviceaccount:kube-system:") &&
		r.User.Username != "system:apiserver"
}

// writes tells whether the request was meant to change something.
func (r *Request) writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (r *Request) done() bool { return r.ResponseStatus.Code >= 200 && r.ResponseStatus.Code < 300 }

// String formats the request as evidence.
func (r *Request) String() string {
	ref := r.ObjectRef
	path := ref.Resource + "/" + ref.Name
	if ref.Subresource != "" {
		path += "/" + ref.Subresource
	}
	agent, _, _ := strings.Cut(r.UserAgent, " ")
	return fmt.Sprintf("[%s audit] %s %s by %s: %d", r.Received, r.Verb, path, agent, r.ResponseStatus.Code)
}

// CopyAudit copies the lines of an API server's audit log that are about a
// namespace to dst, from an offset on, and returns the offset from which to continue.
// It leaves out reads, except those of runs: they change nothing and are most of
// the log.
func CopyAudit(dst io.Writer, auditLog string, from int64, namespace string) (int64, error) {
	mark := []byte(`"namespace":"` + namespace + `"`)
	return eachLine(auditLog, from, func(_ int, line []byte) error {
		if !bytes.Contains(line, mark) || !bytes.Contains(line, []byte(runnerAgent)) &&
			(bytes.Contains(line, []byte(`"verb":"get"`)) || bytes.Contains(line, []byte(`"verb":"list"`)) ||
				bytes.Contains(line, []byte(`"verb":"watch"`))) {
			return nil
		}
		if _, err := dst.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("copy the audit log: %w", err)
		}
		return nil
	})
}
