package api

import (
	"cmp"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/history"
)

// Waiting is an object whose run is due, and has to wait.
type Waiting struct {
	history.Object
	// Cause is why it runs, and Class how urgent that is; empty where it waits for no place.
	Cause string `json:"cause,omitempty"`
	Class string `json:"class,omitempty"`
	// Since is when it was due.
	Since time.Time `json:"since"`
	// Position is its place in the order by urgency, in which also objects count that the
	// client may not get; 0 where it is not in the queue.
	Position int `json:"position,omitempty"`
	// Held is what keeps it waiting: kind, all, urgent, memory, rollout, stopped, window or
	// paused; empty for what runs next. Until is when that ends, where it is known.
	Held  string    `json:"held,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// HeldBy says in words what keeps it waiting; empty for what runs next.
func (w Waiting) HeldBy() string {
	words := map[string]string{
		"kind": "runs of the kind", "all": "runs of all kinds", "urgent": "urgent runs", "stopped": "stopped rollout", "paused": "pause",
	}
	return cmp.Or(words[w.Held], w.Held)
}

// Queue is the answer for what waits.
type Queue struct {
	metav1.TypeMeta
	Metadata QueueMeta `json:"metadata"`
	Items    []Waiting `json:"items"`
}

// QueueMeta says how things stand when a list of what waits is made.
type QueueMeta struct {
	// Leads is false where another replica makes the runs, and has the queue.
	Leads bool `json:"leads"`
	// LeftOut is how many there was no room for.
	LeftOut int `json:"leftOut,omitempty"`
	// Shards is left out where the replicas do not share the objects.
	Shards *Shards `json:"shards,omitempty"`
}

// queue lists what waits: the queue in its order, then what waits for something else.
func (s *server) queue(w http.ResponseWriter, r *http.Request) {
	sel, bad := s.selects(r)
	var limit int
	if bad == nil {
		limit, bad = limitOf(r)
	}
	if bad != nil {
		fail(w, bad)
		return
	}
	list := Queue{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Queue"}, Metadata: QueueMeta{Leads: s.Leads(), Shards: s.shared()}, Items: []Waiting{}}
	for _, is := range s.Waiting() {
		switch {
		case !sel.wants(history.Brief{Object: is.Object}):
		case len(list.Items) == limit:
			list.Metadata.LeftOut++
		default:
			list.Items = append(list.Items, is)
		}
	}
	answerJSON(w, list)
}
