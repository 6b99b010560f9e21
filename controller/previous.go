package controller

import (
	"encoding/json"

	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/fieldpath"
)

// previous is the spec that the last successful run of an object applied. The zero value
// means that it is not known.
type previous struct {
	// raw is the spec as JSON, nil if it is not known; spec is the decoded form.
	raw  json.RawMessage
	spec any
	// fields are the paths at which the current spec differs, at most
	// [maxChangedFields]; more is the number of further paths.
	fields []string
	more   int
}

// previousOf reads from the disk the spec that the object's last successful run applied.
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

// keepSpec stores the spec of s for later runs if run has applied it; else it stores the spec
// that was kept with last, the run before.
func (r *reconciler) keepSpec(s *scope, last *status.Run, run status.Run) {
	var spec json.RawMessage
	var err error
	switch {
	case run.Result == status.Succeeded && run.Mode != status.ModeCheck && !run.NotYet() && !s.deleting:
		if s.given == nil {
			return // an earlier process began the run, or the object has no spec
		}
		spec, err = json.Marshal(s.given)
	case last != nil:
		spec = r.store.Spec(s.uid(), last.ID)
	}
	if err == nil {
		err = r.store.KeepSpec(s.uid(), run.ID, spec)
	}
	if err != nil {
		s.log.V(1).Info("Later runs are not told what was changed in the spec", "error", err.Error())
	}
}

// maxChangedFields is the largest number of changed paths that are named.
const maxChangedFields = 20
