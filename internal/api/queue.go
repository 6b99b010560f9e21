package api

import (
	"cmp"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/history"
)

// Waiting is an object whose run is due, but has to wait.
type Waiting struct {
	history.Object
	// Cause is why it runs, and Class is its class in the queue; empty if it is not waiting for a place.
	Cause string `json:"cause,omitempty"`
	Class string `json:"class,omitempty"`
	// Since is when the run became due.
	Since time.Time `json:"since"`
	// Position is its place in the queue, counting objects that the client may not get, too; 0 if
	// it is not in the queue.
	Position int `json:"position,omitempty"`
	// Held is what keeps it waiting: kind, all, urgent, memory, rollout, stopped, window or
	// paused; empty for what runs next. Until is when that ends, if it is known.
	Held  string    `json:"held,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// HeldBy returns in words what keeps it waiting; empty for what runs next.
func (w Waiting) HeldBy() string {
	words := map[string]string{
		"kind": "runs of the kind", "all": "runs of all kinds", "urgent": "urgent runs", "stopped": "stopped rollout", "paused": "pause",
	}
	return cmp.Or(words[w.Held], w.Held)
}

// Queue is the answer with what is waiting.
type Queue struct {
	metav1.TypeMeta
	Metadata QueueMeta `json:"metadata"`
	Items    []Waiting `json:"items"`
}

// QueueMeta describes the state when the list of a queue was made.
type QueueMeta struct {
	// Leads is false if another replica makes the runs, and has the queue.
	Leads bool `json:"leads"`
	// LeftOut is how many items were left out because of the limit.
	LeftOut int `json:"leftOut,omitempty"`
	// Shards is left out if the replicas do not share the objects.
	Shards *Shards `json:"shards,omitempty"`
}

// queue lists what is waiting: the queue in order, then objects that wait for something else.
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
	list := Queue{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Queue"}, Metadata: QueueMeta{Leads: s.Leads(), Shards: s.Shards()}, Items: []Waiting{}}
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
