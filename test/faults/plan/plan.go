package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan is a run of a workload with the faults that happen during it. A plan without faults is a reference run.
type Plan struct {
	// Name is unique in a campaign and names the plan's file: lower case letters, digits, dots and hyphens.
	Name string `json:"name"`
	// Workload names what the campaign's client does in the meantime.
	Workload string `json:"workload"`
	// Replicas is the number of replicas of the operator; 0 means 1.
	Replicas   int         `json:"replicas,omitempty"`
	Rules      []Rule      `json:"rules,omitempty"`
	Failpoints []Failpoint `json:"failpoints,omitempty"`
}

// Rule is one fault on the wire.
type Rule struct {
	Match  Match  `json:"match"`
	Action Action `json:"action"`
}

// Match says which requests or events a rule acts on; see the package's documentation. The zero value matches the first
// request.
type Match struct {
	Verb       string `json:"verb,omitempty"`
	Resource   string `json:"resource,omitempty"`
	Name       string `json:"name,omitempty"`
	Replica    string `json:"replica,omitempty"`
	Event      string `json:"event,omitempty"`
	Occurrence int    `json:"occurrence,omitempty"` // 1-based; 0 means 1
	Times      int    `json:"times,omitempty"`      // 0 means 1, -1 means without end
}

// AnyEvent is the Event of a match that fits events of every type.
const AnyEvent = "*"

// Fits reports whether r has the values of all given fields of m, apart from the counts.
func (m Match) Fits(r Request) bool {
	event := m.Event == r.Event || m.Event == AnyEvent && r.Event != ""
	return event && fits(m.Verb, r.Verb) && fits(m.Resource, r.Resource) && fits(m.Name, r.Name) && fits(m.Replica, r.Replica)
}

func fits(want, is string) bool { return want == "" || want == is }

// Action is what a rule does; see the package's documentation.
type Action struct {
	Do     Do              `json:"do"`
	For    metav1.Duration `json:"for,omitzero"`
	Signal string          `json:"signal,omitempty"` // of a crash: KILL (the default), TERM or STOP
}

// Do names an action.
type Do string

// The actions.
const (
	CrashBefore        Do = "crash-before"
	CrashAfter         Do = "crash-after"
	Conflict           Do = "conflict"
	Throttle           Do = "throttle"
	Error              Do = "error"
	Unavailable        Do = "unavailable"
	Forbid             Do = "forbid"
	Invalid            Do = "invalid"
	Gone               Do = "gone"
	Block              Do = "block"
	TimeoutAfterCommit Do = "timeout-after-commit"
	ResetBefore        Do = "reset-before"
	ResetAfter         Do = "reset-after"
	Slow               Do = "slow"
	Stale              Do = "stale"
	HoldWatch          Do = "hold-watch"
	DropEvent          Do = "drop-event"
	DuplicateEvent     Do = "duplicate-event"
	CutWatch           Do = "cut-watch"
)

// Lasts reports whether For is the time during which the action happens to everything that matches, from the first time on.
func (a Action) Lasts() bool {
	switch a.Do {
	case Conflict, Throttle, Error, Unavailable, Forbid, Invalid, Gone, ResetBefore, Block:
		return a.For.Duration > 0
	}
	return false
}

// Failpoint is a fault inside the operator.
type Failpoint struct {
	Name       string          `json:"name"`
	Do         string          `json:"do"`                   // kill, term, stop, panic or sleep
	Occurrence int             `json:"occurrence,omitempty"` // 1-based; 0 means 1
	For        metav1.Duration `json:"for,omitzero"`         // for stop and sleep
	Replica    string          `json:"replica,omitempty"`    // "" means any
}

// Request is a request of the operator, or an event that a watch has delivered to it, as the proxy saw it.
type Request struct {
	Time    time.Time `json:"time"`
	Replica string    `json:"replica"`
	Verb    string    `json:"verb"`
	Group   string    `json:"group,omitempty"`
	Version string    `json:"version,omitempty"`
	// Resource is the plural, with the subresource after a slash; for requests without a resource, it is the path.
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object. If the request does not contain it (generateName, or not JSON), it is taken from the
	// answer.
	Name string `json:"name,omitempty"`
	// Event is the type of an event; empty for requests.
	Event string `json:"event,omitempty"`
	// Occurrence is the number among the requests with the same verb, resource and event, from 1.
	Occurrence int    `json:"occurrence"`
	UserAgent  string `json:"userAgent,omitempty"`
	// Code is the API server's status code; 0 if it was not asked or did not answer.
	Code int `json:"code,omitempty"`
	// AuditID is the ID of the API server's audit event.
	AuditID string `json:"auditID,omitempty"`
	// Fault is what a rule did to this request.
	Fault Do `json:"fault,omitempty"`
	// UID, Generation, ResourceVersion and Deleted (there is a deletionTimestamp) are taken from the object in the answer or
	// the event.
	UID             string `json:"uid,omitempty"`
	Generation      int64  `json:"generation,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Deleted         bool   `json:"deleted,omitempty"`
}

// Writes reports whether the request changes something.
func (r Request) Writes() bool { return writes(r.Verb) }

func writes(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}
