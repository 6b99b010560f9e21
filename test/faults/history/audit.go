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
	// ResponseObject is there for custom resources only.
	ResponseObject json.RawMessage

	// Sent is when the operator sent it, as far as known; Received and Done are the API server's.
	Sent, Received, Done Instant `json:"-"`
	// Replica is which operator sent it, where the fault proxy said so.
	Replica string `json:"-"`
}

// runnerAgent is how the requests of a run name it, in the User-Agent.
const runnerAgent = "fakerunner/"

// run is the ID of the run that made a request; empty if none did.
func (r *Request) run() string {
	_, id, ok := strings.Cut(r.UserAgent, runnerAgent)
	if !ok {
		return ""
	}
	id, _, _ = strings.Cut(id, " ")
	return id
}

// operator tells whether the operator itself made the request: no one else is
// left when the campaign's client, the runs and the control plane are not.
func (r *Request) operator() bool {
	return r.run() == "" && !strings.HasPrefix(r.UserAgent, "campaign") && !strings.HasPrefix(r.UserAgent, "kube-") &&
		!strings.HasPrefix(r.User.Username, "system:kube-") && !strings.HasPrefix(r.User.Username, "system:serviceaccount:kube-system:") &&
		r.User.Username != "system:apiserver"
}

// writes tells whether the request was to change something.
func (r *Request) writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (r *Request) done() bool { return r.ResponseStatus.Code >= 200 && r.ResponseStatus.Code < 300 }

// String is the evidence.
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
// namespace to dst, from an offset on, and returns the offset at which to go on.
// Reads are left out, but for those of runs: they change nothing and are most of
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
