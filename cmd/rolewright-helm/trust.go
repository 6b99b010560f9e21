package main

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
)

// Anyone who may write Secrets in the namespace can forge a release. So the content of a Secret
// only counts as far as something else confirms it: a seal in the status of the object, which
// this program wrote when it had rendered the release; what the chart renders now; or the marks
// on live objects.

// labelSalt is on each sealed revision, so that the seal reveals nothing about the values to
// people who may read the object, but not the Secret.
const labelSalt = "rolewright.dev/salt"

// sealOf returns a digest of what Helm's actions take from a revision. A rollback's revision has
// the seal of the revision that it restores.
func (h *handler) sealOf(is *release.Release) string {
	hash := sha256.New()
	add := func(value any) {
		_ = json.NewEncoder(hash).Encode(value) // texts and numbers
	}
	add([]any{is.Labels[labelSalt], is.Labels[labelInputs], h.in.Object.GetUID(), is.Manifest, len(is.Hooks)})
	for _, hook := range is.Hooks {
		if hook == nil {
			continue
		}
		policies := hook.DeletePolicies
		if len(policies) == 0 { // as Helm sets it once the hook was run
			policies = []release.HookDeletePolicy{release.HookBeforeHookCreation}
		}
		add([]any{hook.Name, hook.Kind, hook.Manifest, hook.Events, hook.Weight, policies})
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// sealed tells whether the seal in the status belongs to a revision. Without the status
// subresource, users write the status, so it proves nothing. If the seal is a different one, others have
// changed the release since.
func (h *handler) sealed(is *release.Release) (bool, error) {
	st, _ := h.in.Object.Object["status"].(map[string]any)
	has, _ := st["deployedRelease"].(map[string]any)
	seal, _ := has["seal"].(string)
	h.broken = seal != "" && seal != h.sealOf(is)
	if seal == "" || h.broken || is.Labels[labelSalt] == "" {
		return false, nil
	}
	gvk := h.in.Object.GroupVersionKind()
	mapping, err := h.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	served, err := h.discovery.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil {
		return false, cause(err)
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
		return r.Name == mapping.Resource.Resource+"/status"
	}), nil
}

// seal marks a revision that was found as this program's; it is what the chart renders now. It seals
// the rendered text: the text that was found may contain more than was compared.
func (h *handler) seal(is *release.Release, wanted rendered) error {
	inputs, err := h.inputs()
	if err != nil {
		return err
	}
	before := h.sealOf(is)
	is.Manifest, is.Hooks = wanted.manifest, wanted.hooks
	is.Labels = with(is.Labels, map[string]string{labelInputs: inputs, labelSalt: cmp.Or(is.Labels[labelSalt], rand.Text()), labelKind: h.kind()})
	if before != h.sealOf(is) || is.Info.Status != common.StatusDeployed { // else only the status lacks the seal
		is.Info.Status = common.StatusDeployed
		if err := h.config.Releases.Update(is); err != nil {
			return fmt.Errorf("take over the record of revision %d: %w", is.Version, cause(err))
		}
	}
	h.trusted = true
	return nil
}

// distrust reduces a revision that is not sealed to what may still be upgraded or deleted:
// objects that carry the marks of this release. Its hooks become hooks, which are
// the chart's current ones.
func (h *handler) distrust(is *release.Release, hooks []*release.Hook) error {
	is.Hooks = hooks
	var documents, left []string
	for _, document := range single(is.Manifest) {
		if err := readable(document); err != nil {
			note("a document of revision %d cannot be read, and is left out: %v", is.Version, err)
			continue
		}
		list, gone, err := h.built(document)
		if err != nil {
			return fmt.Errorf("the manifest of revision %d: %w", is.Version, cause(err))
		}
		if gone {
			continue // the objects are gone with their kind
		}
		ours := true
		for _, info := range list {
			its, found, err := h.ours(info)
			if err != nil {
				return err
			}
			if !its {
				ours = false
			}
			if found && !its {
				left = append(left, describe(info))
			}
		}
		if ours {
			documents = append(documents, document)
		}
	}
	is.Manifest = join(documents)
	h.leave(left, fmt.Sprintf("Revision %d is not known to be made by this operator, and names objects that carry no mark of the release; they are left", is.Version))
	return nil
}

// leave reports which objects are left alone, and why.
func (h *handler) leave(left []string, why string) {
	if len(left) > 0 {
		note("%s: %s", why, strings.Join(left, ", "))
		h.reports.event("Warning", "UnverifiedRelease", why+": "+named(left))
	}
}

// built returns the objects of a document. gone is true if their kind is no longer served. An API that is only
// unavailable now is an error.
func (h *handler) built(document string) (list kube.ResourceList, gone bool, err error) {
	list, err = h.kube.Build(strings.NewReader(document), false)
	if !meta.IsNoMatchError(err) {
		return list, false, err
	}
	_, _, failed := h.discovery.ServerGroupsAndResources()
	groups, some := discovery.GroupDiscoveryFailedErrorGroups(failed)
	if failed != nil && !some {
		return nil, false, failed
	}
	for version, why := range groups {
		if strings.Contains(err.Error(), strconv.Quote(version.String())) { // the error is in a list without types
			return nil, false, fmt.Errorf("%w: %w", err, why)
		}
	}
	return nil, true, nil
}

// served removes the objects of kinds that are no longer served from a sealed revision, and tells whether there were any.
// The record stays complete.
func (h *handler) served(is *release.Release) (left bool, err error) {
	if _, err := h.kube.Build(strings.NewReader(is.Manifest), false); !meta.IsNoMatchError(err) {
		return false, err
	}
	var documents []string
	for _, document := range split(is.Manifest) {
		_, gone, err := h.built(document)
		switch {
		case err != nil:
			return false, fmt.Errorf("the manifest of revision %d: %w", is.Version, cause(err))
		case gone:
			left = true
		default:
			documents = append(documents, document)
		}
	}
	if left {
		h.records.cut = with(h.records.cut, map[string]string{is.Labels[labelSalt]: is.Manifest})
		is.Manifest = join(documents)
	}
	return left, nil
}

// claim puts Helm's marks on objects of a revision that have only other marks of the release, for example because
// helm-operator recreated them. Helm's uninstallation skips objects without its marks, and objects it cannot read, which is
// an error here.
func (h *handler) claim(is *release.Release) error {
	list, err := h.kube.Build(strings.NewReader(is.Manifest), false)
	if err != nil {
		return fmt.Errorf("the manifest of revision %d: %w", is.Version, cause(err))
	}
	var left []string
	for _, info := range list {
		if obj, err := meta.Accessor(info.Object); err != nil || kept(obj) {
			continue
		}
		ours, err := h.claimOne(info)
		if err != nil {
			return fmt.Errorf("%s: %w", describe(info), cause(err))
		}
		if !ours {
			left = append(left, describe(info))
		}
	}
	h.leave(left, fmt.Sprintf("Objects that revision %d names carry no mark of the release, or are to be kept; they are left", is.Version))
	return nil
}

// claimOne tells whether an object is deleted with the release; true if it does not exist.
func (h *handler) claimOne(info *resource.Info) (ours bool, err error) {
	helper := resource.NewHelper(info.Client, info.Mapping).WithFieldManager(fieldManager)
	live, err := helper.Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	obj, err := meta.Accessor(live)
	if err != nil {
		return false, err
	}
	annotations := obj.GetAnnotations()
	its := annotations[annotationName] == h.name() && annotations[annotationNamespace] == h.in.Object.GetNamespace()
	switch {
	case its && obj.GetLabels()[labelManagedBy] == managedByHelm:
		h.claimed = append(h.claimed, info)
		return true, nil
	case annotations[annotationName] != "" && !its, !h.carriesMarks(live), kept(obj):
		return false, nil
	}
	marks := &resource.Info{Object: &unstructured.Unstructured{}}
	if err := h.helmMarks(marks); err != nil {
		return false, err
	}
	patch, err := json.Marshal(marks.Object)
	if err == nil {
		_, err = helper.Patch(info.Namespace, info.Name, types.MergePatchType, patch, nil)
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	h.claimed = append(h.claimed, info)
	return err == nil, err
}

// ours tells whether an object exists, and whether it carries marks of the release: Helm's,
// helm-operator's, or an owner reference to the object.
func (h *handler) ours(info *resource.Info) (ours, found bool, err error) {
	live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", describe(info), cause(err))
	}
	if of := h.otherObject(live); of != "" {
		return false, true, foreign{fmt.Errorf("the release %s belongs to %s, which owns %s; make an object with another name", h.name(), of, describe(info))}
	}
	return h.carriesMarks(live), true, nil
}

// foreign is the error for a release that belongs to another object.
type foreign struct{ error }

// labelKind is on each revision: the kind of the object that it was made for.
const labelKind = "rolewright.dev/kind"

// kind returns a digest of the object's kind, which itself may be too long for a label.
func (h *handler) kind() string {
	sum := sha256.Sum256([]byte(h.in.Object.GroupVersionKind().GroupKind().String()))
	return hex.EncodeToString(sum[:16])
}

// own returns an error if a release that is not trusted belongs to another object, according to its records or to the
// objects of the revisions in of.
func (h *handler) own(history []*release.Release, of ...*release.Release) error {
	if h.trusted {
		return nil
	}
	for _, rel := range history {
		if kind := rel.Labels[labelKind]; kind != "" && kind != h.kind() {
			return foreign{fmt.Errorf("the release %s belongs to an object of another kind; make an object with another name, or delete the Secrets sh.helm.release.v1.%s.v* if that one is gone", h.name(), h.name())}
		}
	}
	for _, rel := range of {
		for _, document := range single(rel.Manifest) {
			if readable(document) != nil {
				continue
			}
			list, _, err := h.built(document)
			if err != nil {
				return fmt.Errorf("the manifest of revision %d: %w", rel.Version, cause(err))
			}
			for _, info := range list {
				if _, _, err := h.ours(info); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// otherObject returns the object that owns the release if it is one of another kind with the same name, and a chart of the
// same name; empty if not. The marks of that release do not belong to this object.
func (h *handler) otherObject(live runtime.Object) string {
	obj, err := meta.Accessor(live)
	if err != nil || h.trusted {
		return ""
	}
	owner, is := &h.in.Object, obj.GetAnnotations()
	if is[annotationName] != h.name() || is[annotationNamespace] != owner.GetNamespace() {
		return ""
	}
	kind := owner.GroupVersionKind().GroupKind().String()
	if !kept(obj) && is[annotationOwner] == owner.GetNamespace()+"/"+owner.GetName() { // an object that is kept outlives its owner
		kind = cmp.Or(is[annotationOwnerType], kind)
	}
	if of := metav1.GetControllerOf(obj); of != nil && of.Name == h.name() {
		kind = schema.FromAPIVersionAndKind(of.APIVersion, of.Kind).GroupKind().String()
	}
	if kind == owner.GroupVersionKind().GroupKind().String() {
		return ""
	}
	return kind + " " + h.name()
}

func (h *handler) carriesMarks(live runtime.Object) bool {
	obj, err := meta.Accessor(live)
	if err != nil {
		return false
	}
	owner := &h.in.Object
	is := obj.GetAnnotations()
	switch {
	case is[annotationName] == h.name() && is[annotationNamespace] == owner.GetNamespace(),
		is[annotationOwner] == owner.GetNamespace()+"/"+owner.GetName() && is[annotationOwnerType] == owner.GroupVersionKind().GroupKind().String():
		return true
	}
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
}

// adoptable refuses objects that the chart makes now but others have made: an installation would refuse them, too.
func (h *handler) adoptable(list kube.ResourceList) error {
	for _, info := range list {
		ours, found, err := h.ours(info)
		if err != nil {
			return err
		}
		if found && !ours && !h.in.settings.TakeOwnership {
			return fmt.Errorf("%s exists and carries no mark of the release %s; remove it, or set takeOwnership in the watch", describe(info), h.name())
		}
	}
	return nil
}

// agreed returns the objects of a manifest, leaving out those that differ.
func agreed(manifest string, differ []string) (string, error) {
	var documents []string
	for _, document := range split(manifest) {
		objects, err := parse(document)
		if err != nil {
			return "", err
		}
		in := false
		for name := range objects {
			in = slices.ContainsFunc(differ, func(other string) bool { return strings.TrimRight(other, "'") == name })
		}
		if !in {
			documents = append(documents, document)
		}
	}
	return join(documents), nil
}
