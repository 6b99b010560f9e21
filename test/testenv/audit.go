package testenv

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// AuditEvent is one answered request, with the fields of Kubernetes' audit events that tests ask about.
type AuditEvent struct {
	Verb       string // get, list, watch, create, update, patch, delete, deletecollection
	RequestURI string
	UserAgent  string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Namespace, Name, APIGroup, APIVersion, Subresource string }
	// ResponseStatus is the status of the answer.
	ResponseStatus struct{ Code int }
	// RequestObject and ResponseObject are there for custom resources only.
	RequestObject, ResponseObject json.RawMessage
}

// Writes reports whether the request changes objects, or tries to.
func (e AuditEvent) Writes() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// AuditEvents returns the requests since the start of the server that name, in any field, a text which needs no escape in
// JSON, and that want accepts, oldest first. Only those are decoded: the log has what all tests have asked for, a hundred
// megabytes and more. A request is in the log once it is answered; a watch when it has begun, and again when it has ended.
// It fails the test if the server writes no audit log.
func AuditEvents(t testing.TB, name string, want func(AuditEvent) bool) []AuditEvent {
	t.Helper()
	if err := shared.get(); err != nil {
		missing(t, err)
	}
	if shared.auditLog == "" {
		t.Fatalf("%s names a control plane, but %s no audit log of it", kubeconfigVariable, auditLogVariable)
	}
	data, err := os.ReadFile(shared.auditLog)
	if err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	var events []AuditEvent
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written, and its request is not answered yet
		}
		if !bytes.Contains(line, []byte(name)) {
			continue
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("read the audit log: %v", err)
		}
		if want(event) {
			events = append(events, event)
		}
	}
	return events
}
