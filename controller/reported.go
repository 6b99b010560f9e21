package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner/report"
)

// callsOfCommand returns the function that handles the calls of s's command. Reports of references are
// handled here, everything else as for modules.
func (r *reconciler) callsOfCommand(s *scope) func(context.Context, string, []byte) error {
	return func(ctx context.Context, name string, body []byte) error {
		if name == string(report.Reference) {
			return r.hear(s, body)
		}
		return s.access.Call(ctx, name, body)
	}
}

// hear notes an object that the command reports, in its current version. Any later change counts,
// whenever the command has read the object.
func (r *reconciler) hear(s *scope, body []byte) error {
	var said report.Object
	if err := json.Unmarshal(body, &said); err != nil {
		return fmt.Errorf("read the reference: %w", err)
	}
	ref := reference.Reference{
		GVK:            schema.FromAPIVersionAndKind(said.APIVersion, said.Kind),
		NamespacedName: types.NamespacedName{Namespace: cmp.Or(said.Namespace, s.key.Namespace), Name: said.Name},
	}
	if err := r.mayReport(s, ref); err != nil {
		return err
	}
	if r.referring == nil {
		return nil // a run without an operator
	}
	t := r.referring.targetOf(ref)
	if slices.ContainsFunc(s.heard, func(is referred) bool { return is.target == t }) {
		return nil
	}
	if len(s.heard) == status.MaxReferences {
		return fmt.Errorf("a run can have %d objects watched", status.MaxReferences)
	}
	s.heard = append(s.heard, r.referring.now(t, r.owner(s)))
	return nil
}

// mayReport returns an error if the watch's commands may not report ref. It also judges the references
// in a status.
func (r *reconciler) mayReport(s *scope, ref reference.Reference) error {
	quoted := func(text string) string { return clip(s.mask.Mask(text)) } // masked before the cut, since a part of a value is not found
	switch {
	case !slices.Contains(reference.Reported(r.watch), ref.GVK):
		return fmt.Errorf("the watch has no references of %s that are reported: add {group, version, kind, reported: true} to its references", quoted(ref.GVK.String()))
	case !reference.IsName(ref.Name), ref.Namespace != "" && !reference.IsName(ref.Namespace), recorded(ref) == "":
		return fmt.Errorf("%q is not a name of an object", quoted(ref.String()))
	case r.watch.OwnNamespaceOnly && ref.Namespace != "" && ref.Namespace != s.key.Namespace:
		return fmt.Errorf("%q is in another namespace than the object, and the watch has ownNamespaceOnly", quoted(ref.String()))
	case ref.GVK.GroupKind() == r.gvk.GroupKind() && ref.NamespacedName == s.key:
		return errors.New("an object cannot wait for itself")
	}
	return nil
}

// reportedBefore returns the references in the record of the last run, given as texts. It leaves
// out those that [reconciler.mayReport] does not allow: other clients, or another version of the
// watch, may have written them.
func (r *reconciler) reportedBefore(s *scope, texts []string) (refs []reference.Reference) {
	for _, text := range texts {
		parts := strings.SplitN(text, " ", 3) // package status has checked the form
		if len(parts) != 3 {
			continue
		}
		namespace, name, _ := strings.Cut(parts[2], "/")
		ref := reference.Reference{GVK: schema.FromAPIVersionAndKind(parts[0], parts[1]), NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
		if r.mayReport(s, ref) == nil && !slices.Contains(s.named, ref) && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// watchReported replaces the references that the previous run's command reported by those of this
// run, if it has succeeded.
func (r *reconciler) watchReported(s *scope) {
	if s.referring == nil || len(r.referring.reported) == 0 || s.deleting || s.plan.check || s.err != nil || !s.result.Verdict().Success {
		return
	}
	s.reported = nil
	for _, is := range s.heard {
		s.reported = append(s.reported, reference.Reference{GVK: is.kind.gvk, NamespacedName: is.NamespacedName})
	}
	slices.SortFunc(s.reported, func(a, b reference.Reference) int {
		return cmp.Or(cmp.Compare(a.GVK.String(), b.GVK.String()), cmp.Compare(a.String(), b.String()))
	})
	further := slices.DeleteFunc(slices.Clone(s.reported), func(ref reference.Reference) bool { return slices.Contains(s.named, ref) })
	all, _ := r.referring.refer(s.key, r.owner(s), slices.Concat(s.named, further))
	for i, is := range all {
		same := func(other referred) bool { return other.target == is.target }
		if before := slices.IndexFunc(s.referred, same); before >= 0 {
			all[i] = s.referred[before] // in the version that the run saw at its start, or wrote
		} else if heard := slices.IndexFunc(s.heard, same); heard >= 0 {
			all[i] = s.heard[heard]
		}
	}
	if s.referred = all; !s.earlier { // what an adopted run has read is not known: it keeps the inputs in its ticket
		r.noteReferred(s)
	}
}

// recorded returns the form in which a status records a reference; empty if it cannot be recorded.
func recorded(ref reference.Reference) string {
	return status.Reference(ref.GVK.GroupVersion().String(), ref.GVK.Kind, ref.Namespace, ref.Name)
}

// references returns the reported references, to be recorded with the run of s.
func (r *reconciler) references(s *scope) (refs []string) {
	for _, ref := range s.reported {
		refs = append(refs, recorded(ref))
	}
	return refs
}
