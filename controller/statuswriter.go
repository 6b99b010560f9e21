package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
)

// change computes the new status from the one that was read.
type change func(map[string]any) map[string]any

// writeStatus writes the status that ch computes from obj's status, and updates obj
// with the API server's answer. The write is a merge patch of the difference,
// conditional on the resource version that was read. After a conflict, the object is
// read again and ch applied again, so that no other client's write is lost. Without a
// difference, nothing is written. If another object has the name by now, the error is
// a NotFound.
func (r *reconciler) writeStatus(ctx context.Context, obj *unstructured.Unstructured, moment metrics.Moment, ch change) error {
	if !r.writesStatus() {
		return nil
	}
	fresh := true
	err := clientretry.OnError(clientretry.DefaultBackoff, apierrors.IsConflict, func() error {
		if !fresh {
			if err := r.readAgain(ctx, obj); err != nil {
				return err
			}
		}
		fresh = false
		return r.patchStatus(ctx, obj, moment, ch)
	})
	if apierrors.IsConflict(err) {
		r.metrics.StatusWrite(r.gvk, moment, err) // the single tries were not counted
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// writeEnd records run in the object's status. If the schema or the object's size will never
// allow the write, it only logs that, and returns nil.
func (r *reconciler) writeEnd(ctx context.Context, s *scope, run status.Run) error {
	if !r.writesStatus() {
		return nil
	}
	// Most of the time, s.object is what this process last wrote. If another client has
	// written since, the write is a conflict, after which the object is read again.
	var err error
	if s.trimmed || s.progress != nil && s.progress.behind() {
		err = r.readLive(ctx, s)
	}
	if err == nil {
		next := r.situationAfter(s, run).delay()
		err = r.writeStatus(ctx, s.object, metrics.MomentEnd, func(st map[string]any) map[string]any {
			return s.conclude(st, run, next, r.now())
		})
	}
	if final(err) {
		r.logRefusal(s, err)
		return nil
	}
	if err == nil {
		r.store.NoteWritten(s.uid(), run.ID)
	}
	return err
}

// show writes the status of an object that is not run; what names the write in errors. A refusal does not fail the
// reconcile: it is logged once, shown is false, and nothing is tried again before opts.RetryMax has passed.
func (r *reconciler) show(ctx context.Context, s *scope, what string, ch change) (shown bool, err error) {
	m := s.memory
	if r.now().Before(m.refused) {
		return false, nil
	}
	if err = r.readLive(ctx, s); err == nil {
		err = r.writeStatus(ctx, s.object, metrics.MomentEnd, ch)
	}
	switch {
	case client.IgnoreNotFound(err) == nil:
	case !refused(err):
		return false, fmt.Errorf("%s: %w", what, err)
	default:
		if m.refused.IsZero() {
			r.logRefusal(s, err)
		}
		if !final(err) {
			m.refused = r.now().Add(r.opts.RetryMax)
			return false, nil
		}
	}
	m.refused = time.Time{}
	return true, nil
}

// readLive replaces the scope's object by the live one.
func (r *reconciler) readLive(ctx context.Context, s *scope) error {
	if err := r.readAgain(ctx, s.object); err != nil {
		return err
	}
	s.trimmed = false
	return nil
}

// readAgain reads obj from the API server. The error is a NotFound if another object has the name by now.
func (r *reconciler) readAgain(ctx context.Context, obj *unstructured.Unstructured) error {
	uid := obj.GetUID()
	next := r.newObject()
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), next); err != nil {
		return err
	}
	if next.GetUID() != uid {
		return apierrors.NewNotFound(r.resource(), obj.GetName())
	}
	obj.Object = next.Object
	return nil
}

func (r *reconciler) patchStatus(ctx context.Context, obj *unstructured.Unstructured, moment metrics.Moment, ch change) error {
	before, _ := obj.Object["status"].(map[string]any)
	after := ch(before)
	legacy := r.now().Unix() < r.legacyUntil.Load()
	if legacy {
		after = status.Legacy(before, after)
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	err := r.sendStatus(ctx, obj, after)
	switch {
	case legacy:
	case err == nil:
		if r.legacyUntil.Load() != 0 && !reflect.DeepEqual(after["conditions"], status.Legacy(before, after)["conditions"]) {
			r.legacyUntil.Store(0) // the schema allows again what it refused
		}
	case ofSchema(err):
		// A schema made for ansible-operator may list the allowed conditions.
		if r.sendStatus(ctx, obj, status.Legacy(before, after)) == nil {
			r.noticeLegacy(obj, before, err)
			err = nil
		}
	}
	if tooLarge(err) {
		r.log.Info("Status does not fit into the object and is cut down to its conditions",
			"namespace", obj.GetNamespace(), "name", obj.GetName())
		err = r.sendStatus(ctx, obj, status.Minimal(before, after))
	}
	r.countWrite(moment, err)
	return err
}

// legacyPeriod is for how long the legacy form is written without a try of the full status.
const legacyPeriod = 10 * time.Minute

// noticeLegacy is called after a refusal of the full status that the legacy form did not get. It applies the legacy form to
// the whole kind for a while, unless others have written into the status: then their fields may be the reason.
func (r *reconciler) noticeLegacy(obj *unstructured.Unstructured, before map[string]any, err error) {
	const refused = "The CustomResourceDefinition's schema refuses the conditions Ready, Reconciling and Stalled or the summary; " +
		"only Running, Successful and Failure are written"
	if r.legacyUntil.Load() == 0 && !status.IsOwn(before) {
		r.log.V(1).Info(refused+" for this object", "namespace", obj.GetNamespace(), "name", obj.GetName(), "error", err.Error())
		return
	}
	if r.legacyUntil.Swap(r.now().Add(legacyPeriod).Unix()) == 0 {
		r.log.Info(refused+" from now on; a corrected schema is noticed within "+legacyPeriod.String(), "gvk", r.gvk.String(), "error", err.Error())
	}
}

// countWrite counts a write in metrics, except conflicts, which are retried, and writes to objects
// that are gone.
func (r *reconciler) countWrite(moment metrics.Moment, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.metrics.StatusWrite(r.gvk, moment, err)
	}
}

// sendStatus patches the status of obj to after, and updates obj with the answer.
func (r *reconciler) sendStatus(ctx context.Context, obj *unstructured.Unstructured, after map[string]any) error {
	next := obj.DeepCopy()
	next.Object["status"] = after
	patch := client.MergeFromWithOptions(obj.DeepCopy(), client.MergeFromWithOptimisticLock{})
	failpoint.Hit("status.before-patch")
	if err := r.client.Status().Patch(ctx, next, patch, unwarned()); err != nil {
		return err
	}
	failpoint.Hit("status.after-patch")
	obj.Object = next.Object
	r.noticeDroppedSummary(obj, after)
	return nil
}

// unwarned keeps the API server from sending a warning about dropped fields with each
// write; noticeDroppedSummary logs that once.
func unwarned() client.SubResourcePatchOption {
	return &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldValidation: metav1.FieldValidationIgnore}}
}

// noticeDroppedSummary logs, once until the schema changes, that the kind's schema drops status.ansible.
func (r *reconciler) noticeDroppedSummary(obj *unstructured.Unstructured, after map[string]any) {
	stored, _ := obj.Object["status"].(map[string]any)
	_, wrote := after["ansible"]
	_, kept := stored["ansible"]
	if !wrote {
		return
	}
	if r.schemaDropsSummary.Swap(!kept) || kept {
		return
	}
	r.log.Info("The CustomResourceDefinition's schema drops status.ansible: progress and the summary of runs are not shown, "+
		"and unchanged objects run again after a restart; declare status.ansible with x-kubernetes-preserve-unknown-fields: true",
		"gvk", r.gvk.String())
}

// writeProgress patches the progress of a run into obj's status, conditional on obj's
// resource version, and updates obj with the answer. The API server ignores the UID in
// a patch of a subresource; the resource version prevents a write to another object
// that has the name by now.
func (r *reconciler) writeProgress(ctx context.Context, obj *unstructured.Unstructured, a status.Active) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion()},
		"status":   status.Progress(a),
	})
	if err != nil {
		return fmt.Errorf("encode the progress: %w", err)
	}
	target := r.newObject()
	target.SetNamespace(obj.GetNamespace())
	target.SetName(obj.GetName())
	err = r.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, data), unwarned())
	r.countWrite(metrics.MomentProgress, err)
	if err == nil {
		obj.Object = target.Object
	}
	return err
}

// writesStatus reports whether the watch manages the status and the kind has a status subresource.
func (r *reconciler) writesStatus() bool {
	return r.watch.ManageStatus && r.res.hasStatus
}

func (r *reconciler) logRefusal(s *scope, err error) {
	s.log.Error(err, "Status is refused; check the status schema of the CustomResourceDefinition, admission policies, "+
		"the operator's permissions and the size of the object")
}

// tooLarge reports whether an object exceeds the API server's or etcd's limit.
// etcd's error arrives as an internal error that only its text distinguishes from
// others (etcd/api/v3rpc/rpctypes: ErrRequestTooLarge).
func tooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, "etcdserver: request is too large")
}

// refused reports whether a write failed for a reason that does not pass by itself: the
// schema, an admission policy, a permission or the object's size does not allow it.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || final(err)
}

// final reports whether a write was refused for the object's own sake, so that another try
// would be refused, too. Policies and permissions are not final: someone may fix them. An admission webhook that gives no
// code denies with that of a bad request, but without its reason.
func final(err error) bool {
	return ofSchema(err) || apierrors.ReasonForError(err) == metav1.StatusReasonBadRequest || tooLarge(err)
}

// ofSchema reports whether the kind's schema does not allow the status: then the API
// server names the fields. An admission policy that refuses a write has the same
// code, but says nothing about other writes.
func ofSchema(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "status")
	})
}

// concludeTimeout limits the writes of a run's start and end. They outlive the reconcile's
// context, since a shutdown must not lose a run or its result.
const concludeTimeout = 10 * time.Second
