package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/cli-runtime/pkg/resource"
)

// keep corrects differences in the objects of a release that needs no upgrade.
func (h *handler) keep(ctx context.Context, is *release.Release, wanted rendered) (result, error) {
	h.reports.progress("Compare the objects of revision %d", is.Version)
	if previous := h.in.Run.Previous; previous == nil || previous.Generation != h.in.Object.GetGeneration() {
		h.sayNonDeterministic()
	}
	list, err := h.correctable(is, wanted)
	if err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", cause(err))
	}
	var drifted []string
	var changes diffs
	for _, info := range list {
		if err := ctx.Err(); err != nil {
			return result{}, err
		}
		if err := h.helmMarks(info); err != nil {
			return result{}, err
		}
		did, err := h.correct(info)
		if err != nil {
			return result{}, h.fail(irreconcilable, "ReconcileError", fmt.Errorf("%s: %w", describe(info), cause(err)))
		}
		if did != nil {
			drifted = append(drifted, describe(info))
			changes.add(describe(info), did.was, did.is)
		}
	}
	what := named(drifted)
	switch {
	case len(drifted) == 0:
	case h.check():
		h.reports.change(changes.String(), "Drift would be corrected: %s", what)
	default:
		h.reports.change(changes.String(), "Drift corrected: %s", what)
		h.reports.event("Normal", "DriftCorrected", "Changed back to what the release says: "+what)
	}
	if err := h.sealKept(is, wanted); err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", err)
	}
	if err := h.writeDeployed(ctx, is); err != nil {
		return result{}, err
	}
	reason := upgradeSuccessful
	if is.Version == 1 {
		reason = installSuccessful
	}
	return h.finish(ctx, list, is, reason, len(drifted) > 0)
}

// sealKept seals a revision whose objects match the chart, if it is not trusted, or was rendered from other inputs: its
// hooks are then the chart's current ones. If the revision has kinds that are no longer served, its record stays, because it
// contains them.
func (h *handler) sealKept(is *release.Release, wanted rendered) error {
	if len(h.differ) > 0 || h.check() {
		return nil
	}
	inputs, err := h.inputs()
	if err != nil {
		return err
	}
	if h.trusted && (is.Labels[labelInputs] == inputs || h.records.whole(is) != is) {
		return nil
	}
	return h.seal(is, wanted)
}

// correctable returns the objects of a release to correct: all or, if the release is not trusted, only those
// that the chart makes now.
func (h *handler) correctable(is *release.Release, wanted rendered) (kube.ResourceList, error) {
	if h.trusted {
		return h.kube.Build(strings.NewReader(is.Manifest), false)
	}
	manifest, err := agreed(wanted.manifest, h.differ)
	if err != nil {
		return nil, err
	}
	list, err := h.kube.Build(strings.NewReader(manifest), false)
	if err != nil {
		return nil, err
	}
	return list, h.adoptable(list)
}

// correction is an object before and after it was corrected; was is nil if it was created.
type correction struct{ was, is map[string]any }

// correct makes an object match its manifest, and leaves other fields alone. It
// returns nil if there was nothing to do.
func (h *handler) correct(info *resource.Info) (*correction, error) {
	helper := resource.NewHelper(info.Client, info.Mapping).WithFieldManager(fieldManager)
	live, err := helper.Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		made, err := helper.Create(info.Namespace, true, info.Object)
		if err != nil {
			return nil, err
		}
		return &correction{is: shownObject(made)}, info.Refresh(made, true)
	}
	if err != nil {
		return nil, err
	}
	if other := h.otherRelease(live); other != "" && !h.in.settings.TakeOwnership {
		return nil, fmt.Errorf("it belongs to the release %s now; remove it from one of the two charts, or set takeOwnership in the watch", other)
	}
	patch, kind, err := patchTo(info, live)
	if err != nil {
		return nil, err
	}
	if string(patch) == "{}" {
		return nil, info.Refresh(live, true)
	}
	patched, err := helper.Patch(info.Namespace, info.Name, kind, patch, nil)
	if err != nil {
		return nil, err
	}
	// The API server may normalise the patch away: quantities, defaults.
	if reflect.DeepEqual(stable(live), stable(patched)) {
		return nil, info.Refresh(patched, true)
	}
	did := &correction{shownObject(live), shownObject(patched)}
	// The object may only now belong to the watched object; a run's reads of its object's dependents start watches.
	return did, info.Get()
}

const fieldManager = "rolewright-helm"

// stored returns an object as the API server stores it, where a Secret has no stringData: a patch with stringData
// would never be empty.
func stored(obj runtime.Object) runtime.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		return obj
	}
	texts, there, err := unstructured.NestedStringMap(u.Object, "stringData")
	if !there || err != nil {
		return obj
	}
	u = u.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "stringData")
	for key, value := range texts {
		if unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", key) != nil {
			return obj // the API server says what is wrong with it
		}
	}
	return u
}

// patchTo returns the patch from the live object to its manifest.
func patchTo(info *resource.Info, live runtime.Object) ([]byte, types.PatchType, error) {
	if err := keepOwners(info.Object, live); err != nil {
		return nil, "", err
	}
	wanted, err := json.Marshal(stored(info.Object))
	if err != nil {
		return nil, "", err
	}
	is, err := json.Marshal(live)
	if err != nil {
		return nil, "", err
	}
	typed := kube.AsVersioned(info)
	_, unknown := typed.(runtime.Unstructured)
	_, definition := typed.(*apiextensionsv1.CustomResourceDefinition)
	if unknown || definition {
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(wanted, wanted, is)
		return patch, types.MergePatchType, err
	}
	fields, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return nil, "", err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(wanted, wanted, is, fields, true)
	return patch, types.StrategicMergePatchType, err
}

// keepOwners adds the owners that others gave the live object to an object that has an owner: for a custom resource, the
// list in the patch replaces the live one. It leaves out other controllers, since an object may have only one.
func keepOwners(object, live runtime.Object) error {
	obj, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	is, err := meta.Accessor(live)
	own := obj.GetOwnerReferences()
	if err != nil || len(own) == 0 {
		return err
	}
	all := slices.DeleteFunc(is.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID != own[0].UID && ref.Controller != nil && *ref.Controller
	})
	if i := slices.IndexFunc(all, func(ref metav1.OwnerReference) bool { return ref.UID == own[0].UID }); i >= 0 {
		own[0].BlockOwnerDeletion = all[i].BlockOwnerDeletion // helm-operator sets it, and that is no drift
		all[i] = own[0]
	} else {
		all = append(all, own[0])
	}
	obj.SetOwnerReferences(all)
	return nil
}

// stable returns an object without the fields that each write changes.
func stable(obj runtime.Object) any {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetGeneration(0)
	return u.Object
}

// succeed ends a run that has made a revision.
func (h *handler) succeed(ctx context.Context, is *release.Release, reason string, changed bool) (result, error) {
	h.trusted = true
	if err := h.writeDeployed(ctx, is); err != nil { // before anything that can fail: without its seal, the release is made once more
		return result{}, err
	}
	h.sayIfNonDeterministic(ctx, is)
	list, err := h.kube.Build(strings.NewReader(is.Manifest), false)
	if err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", cause(err))
	}
	for _, info := range list {
		if ctx.Err() != nil {
			return result{}, ctx.Err() // it was stopped
		}
		// Helm's patch of a custom resource does not look at the live one, which an interrupted run may have changed.
		err := h.helmMarks(info)
		if err == nil {
			_, err = h.correct(info)
		}
		if err != nil {
			return result{}, h.fail(irreconcilable, "ReconcileError", fmt.Errorf("%s: %w", describe(info), cause(err)))
		}
	}
	return h.finish(ctx, list, is, reason, changed)
}

// finish reports a release whose objects in list are as the API server returned them.
func (h *handler) finish(ctx context.Context, list kube.ResourceList, is *release.Release, reason string, changed bool) (result, error) {
	h.conditions(absent(irreconcilable), condition{kind: deployed, status: "True", reason: reason, message: is.Info.Notes})
	waiting, err := unready(list)
	res := result{changed: changed, waiting: waiting}
	if err == nil && waiting == "" {
		if err := h.test(ctx, is); err != nil {
			if ctx.Err() != nil {
				return res, err // it was stopped, and has not failed
			}
			return res, h.fail(releaseFailed, "ChartTestError", err)
		}
	}
	h.conditions(absent(releaseFailed)) // only now: if the tests fail again, it stays
	if waiting != "" {
		// The longer it takes, the less often it is checked.
		res.requeue = min(max(time.Since(is.Info.LastDeployed)/4, 5*time.Second), time.Minute)
	}
	return res, err
}

// unready says which objects have not reached the state of their specs yet. An error says which will not reach it.
func unready(list kube.ResourceList) (string, error) {
	var waiting, failed []string
	for _, info := range list {
		obj, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		is, err := status.Compute(obj)
		if err != nil {
			return "", fmt.Errorf("%s: %w", describe(info), err)
		}
		switch is.Status {
		case status.CurrentStatus:
		case status.FailedStatus:
			failed = append(failed, describe(info)+": "+is.Message)
		default:
			waiting = append(waiting, describe(info)+": "+is.Message)
		}
	}
	if len(failed) > 0 {
		return "", errors.New(strings.Join(failed, "; "))
	}
	return strings.Join(waiting, "; "), nil
}
