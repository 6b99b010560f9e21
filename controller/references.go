package controller

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// errReferenceNotFound is the reason for a run that is not made because an object does not exist.
var errReferenceNotFound = errors.New("it does not exist")

// maxVars limits the total size of the values of varsFrom. Those of one object are always below it.
const maxVars = 1 << 20

func (r *reconciler) owner(s *scope) proxy.Owner {
	return proxy.Owner{GVK: r.gvk, Namespace: s.key.Namespace, Name: s.key.Name, UID: s.object.GetUID()}
}

// refer sets the references and triggers in s. It returns false if they are not known yet; the object is
// reconciled again when they are. A finalizer run depends on no other object.
func (r *reconciler) refer(s *scope) (known bool) {
	if r.referring == nil || s.deleting {
		return true
	}
	packed, _ := s.object.Object[referencesKey].(string)
	refs := unpackReferences(packed)
	if !s.trimmed {
		var problems []string
		refs, problems = reference.Read(s.object.Object, s.key, r.gvk.GroupKind(), r.referring.fields)
		for _, p := range problems {
			s.warn(p)
		}
	}
	s.named = refs
	if last := s.memory.last; last != nil {
		s.reported = r.reportedBefore(s, last.References)
		refs = slices.Concat(refs, s.reported)
	}
	s.referred, known = r.referring.refer(s.key, r.owner(s), refs)
	s.warnings = slices.DeleteFunc(s.warnings, func(w string) bool { return slices.Contains(s.notWatched, w) }) // from an earlier call
	s.notWatched = status.NotWatched(r.referring.notWatched(s.referred))
	s.warnings = append(s.warnings, s.notWatched...)
	var all bool
	inputs := ""
	if last := s.memory.last; last != nil {
		inputs = last.Inputs
	}
	s.triggered, all = r.referring.triggered(s.key, inputs)
	for _, is := range s.referred {
		switch {
		case s.trimmed:
		case r.referring.nowhere(is.target):
			s.warn(fmt.Sprintf("%s counts as missing: the object is cluster-scoped and names no namespace; add a namespaceField to the watch", is))
		case !r.referring.seen(is.target):
			s.warn(fmt.Sprintf("%s counts as missing: the operator does not watch its namespace", is))
		}
	}
	return known && all
}

// showNotWatched writes into the status, of an object that is not run, which references and triggers
// cannot be watched, and removes that later. It writes once for each change.
func (r *reconciler) showNotWatched(ctx context.Context, s *scope) error {
	if says := strings.Join(s.notWatched, "\n"); s.memory.notWatched == says || s.deleting || !r.writesStatus() {
		return nil
	}
	shown, err := r.show(ctx, s, "record what is not watched", func(st map[string]any) map[string]any {
		return status.Warn(st, s.notWatched)
	})
	if !shown {
		return err
	}
	s.noteNotWatched()
	return nil
}

// noteNotWatched notes that the status has the warnings in s.notWatched.
func (s *scope) noteNotWatched() { s.memory.notWatched = strings.Join(s.notWatched, "\n") }

// warn adds a warning if s does not have it yet.
func (s *scope) warn(warning string) {
	if !slices.Contains(s.warnings, warning) {
		s.warnings = append(s.warnings, warning)
	}
}

// readVars reads the objects of varsFrom, or the Secrets of a command's files, and has the
// values of Secrets masked. If an object is missing, the error wraps [errReferenceNotFound].
// A finalizer run does without the objects that are missing, wrongly named or too large.
func (r *reconciler) readVars(ctx context.Context, s *scope) ([]extravars.Source, error) {
	var sources []extravars.Source
	size, key := 0, "varsFrom"
	without := "the finalizer runs without the variables"
	if isChart(r.watch) {
		key, without = "valuesFrom", "the finalizer runs without the values"
	} else if r.watch.Content.Command != nil {
		key, without = "secrets", "the finalizer runs without the file"
	}
	for i, from := range r.watch.VarsFrom {
		resource := "configmaps"
		if from.Secret {
			resource = "secrets"
		}
		id, err := varsName(s, from)
		wrong := err != nil // a retry would not help
		if err == nil {
			var obj *unstructured.Unstructured
			gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
			obj, err = r.set.content.Resource(gvr).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
			if err == nil && from.Secret && isOfRuns(obj) {
				err, wrong = errors.New("it is the operator's own, for runs in Pods of their own: name another one"), true
			} else if err == nil {
				name := resource + " " + id.String()
				var source extravars.Source
				if source, err = r.sourceOf(ctx, s, name, from, obj); err == nil {
					sources = append(sources, source)
				}
				for _, value := range source.Data {
					size += len(value)
				}
			} else if apierrors.IsNotFound(err) {
				err = errReferenceNotFound
			}
			if err != nil {
				err = fmt.Errorf("%s %s: %w", resource, id, err)
			}
		}
		if err == nil && size > maxVars {
			err, wrong = errors.New("the values exceed 1 MiB in total: read large values in the role"), true
			sources = sources[:len(sources)-1]
		}
		switch absent := errors.Is(err, errReferenceNotFound); {
		case err == nil, absent && from.Optional:
		case s.deleting && (absent || wrong):
			s.warn(fmt.Sprintf("%s[%d]: %s: %v", key, i, without, err))
		default:
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
	}
	if s.referring != nil {
		r.noteReferred(s)
	}
	return sources, nil
}

// isOfRuns reports whether the operator has made a Secret for runs as Jobs: for one run, or for the operator's certificate.
func isOfRuns(secret *unstructured.Unstructured) bool {
	labels := secret.GetLabels()
	return labels["rolewright.dev/run"] != "" || secret.GetName() == "rolewright-runs" && labels["app.kubernetes.io/managed-by"] == "rolewright"
}

// varsName returns the name of the object from which variables come.
func varsName(s *scope, from watches.VarsFrom) (types.NamespacedName, error) {
	id := types.NamespacedName{Namespace: cmp.Or(from.Namespace, s.key.Namespace), Name: from.Name}
	if id.Namespace == "" && from.File != "" {
		return id, errors.New("the object is in no namespace, and has no Secrets there: let the command read the Secret itself")
	}
	if id.Namespace == "" {
		return id, errors.New("the object is in no namespace: write the namespace in the watch")
	}
	if from.NameField == "" {
		return id, nil
	}
	names := reference.Names(s.object.Object, from.NameField)
	switch {
	case len(names) == 0:
		return id, fmt.Errorf("the object has no name at %s: %w", from.NameField, errReferenceNotFound)
	case len(names) > 1:
		return id, fmt.Errorf("the object has %d names at %s: give one", len(names), from.NameField)
	case !reference.IsName(names[0]):
		return id, fmt.Errorf("%q at %s is not a name of an object", clip(names[0]), from.NameField)
	}
	id.Name = names[0]
	return id, nil
}

// sourceOf returns the variables in obj, which was just read. It notes obj's version as the one
// that the run has seen.
func (r *reconciler) sourceOf(ctx context.Context, s *scope, name string, from watches.VarsFrom, obj *unstructured.Unstructured) (extravars.Source, error) {
	source := extravars.Source{Name: name, Prefix: from.Prefix, Data: map[string]string{}, Secret: from.Secret}
	data, _, err := unstructured.NestedStringMap(obj.Object, "data")
	if err != nil {
		return source, errors.New("its data is not text")
	}
	for key, value := range data {
		if from.File != "" && key != from.Key {
			continue
		}
		if from.Secret {
			plain, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return source, fmt.Errorf("key %q is not in base64", clip(key))
			}
			value = string(plain)
			s.mask.Add(ctx, value)
		}
		source.Data[cmp.Or(from.File, key)] = value
	}
	if from.Secret {
		s.mask.Add(ctx, ofSecret(obj.Object)...)
	}
	for i, is := range s.referred { // not if changes are not seen: the versions would differ for ever
		if is.String() == name && r.referring.watched(is.target) {
			v := dependent.VersionOf(obj)
			s.referred[i].version, s.referred[i].value = versionName(v), valueOf(v, r.owner(s))
		}
	}
	if from.File != "" && len(source.Data) == 0 {
		return source, fmt.Errorf("it has no key %q: %w", from.Key, errReferenceNotFound)
	}
	return source, nil
}

// mayRefer returns an error unless the operator may watch the watch's references and triggers, and read
// the objects of varsFrom, in a namespace. For NamespaceAll, it asks about the operator's namespaces.
func (k *kind) mayRefer(ctx context.Context, c client.Client, namespace string) error {
	for _, gvk := range referredKinds(k.watch) {
		res, err := k.opts.Proxy.Discovery().LookupKind(ctx, gvk)
		if errors.Is(err, discovery.ErrNotFound) {
			continue // it may be installed later
		} else if err != nil {
			return fmt.Errorf("look up what the watch refers to: %w", err)
		}
		namespaces := []string{namespace}
		switch {
		case !res.Namespaced:
			namespaces = []string{metav1.NamespaceAll}
		case namespace == metav1.NamespaceAll && len(k.opts.Namespaces) > 0: // the watched kind is cluster-scoped
			namespaces = k.opts.Namespaces
		}
		verbs := []string{"list", "watch"}
		if slices.ContainsFunc(k.watch.VarsFrom, func(v watches.VarsFrom) bool { return v.Kind() == gvk }) {
			verbs = append(verbs, "get")
		}
		for _, ns := range namespaces {
			var missing []string
			for _, verb := range verbs {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: ns, Verb: verb, Group: res.GVR.Group, Version: res.GVR.Version, Resource: res.GVR.Resource,
					},
				}}
				if err := c.Create(ctx, review); err != nil {
					return fmt.Errorf("ask for permissions on %s: %w", res.GVR.Resource, err)
				}
				if !review.Status.Allowed {
					missing = append(missing, verb)
				}
			}
			if len(missing) > 0 {
				where := "all namespaces"
				if ns != "" {
					where = "the namespace " + ns
				}
				return fmt.Errorf("%w: grant the operator %s on %s in %s, to which the watch refers", errDenied,
					strings.Join(missing, ", "), res.GVR.GroupResource(), where)
			}
		}
	}
	return nil
}
