package controller

import (
	"encoding/json"

	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/fieldpath"
)

// previous is what the last successful run of an object was made for. The zero value is
// that it is not known.
type previous struct {
	// raw is the spec as JSON, nil if it is not known, and spec the same decoded.
	raw  json.RawMessage
	spec any
	// fields are the paths at which the spec is another one now, at most
	// [maxChangedFields]; more is how many there are besides.
	fields []string
	more   int
}

// previousOf reads from the disk what the last successful run of s was made for.
func (r *reconciler) previousOf(s *scope) (p previous) {
	if s.memory.last == nil {
		return previous{}
	}
	p.raw = r.store.Spec(s.uid(), s.memory.last.ID)
	if p.raw == nil || k8sjson.Unmarshal(p.raw, &p.spec) != nil {
		return previous{}
	}
	p.fields, p.more = fieldpath.Changed("spec", p.spec, s.object.Object["spec"], maxChangedFields)
	return p
}

// keepSpec keeps the spec of s if run has applied it, for later runs. It is called while
// last is still the run before.
func (r *reconciler) keepSpec(s *scope, last *status.Run, run status.Run) {
	var err error
	switch {
	case run.Result == status.Succeeded && run.Mode != status.ModeCheck && !run.NotYet() && !s.deleting:
		if s.given == nil {
			return // an earlier process has made the run, or the object has no spec
		}
		var spec json.RawMessage
		if spec, err = json.Marshal(s.given); err == nil {
			err = r.store.KeepSpec(s.uid(), run.ID, spec)
		}
	case last != nil:
		err = r.store.CarrySpec(s.uid(), last.ID, run.ID)
	}
	if err != nil {
		s.log.V(1).Info("Later runs are not told what was changed in the spec", "error", err.Error())
	}
}

// maxChangedFields is how many paths of a spec are named at most.
const maxChangedFields = 20
