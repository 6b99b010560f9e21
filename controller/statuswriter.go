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

// change computes a status from the one that was read.
type change func(map[string]any) map[string]any

// writeStatus brings the status of obj to what ch makes of it, and obj to what
// the API server then holds. The write is a merge patch of the difference
// under the resource version that was read; on a conflict the object is read
// again and ch applied again, so that no one's words are lost. No difference,
// no write. An object that is not the same any more is left alone: then the
// error is a NotFound.
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
		r.metrics.StatusWrite(r.gvk, moment, err) // no try was counted
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// writeEnd records run in the object's status. An object whose schema or size will never
// allow what we write has no use for it.
func (r *reconciler) writeEnd(ctx context.Context, s *scope, run status.Run) error {
	if !r.writesStatus() {
		return nil
	}
	// The object is the one that our own writes left, most of the time; a write by
	// anybody else shows as a conflict and is read then.
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

// show writes what the status says of an object that is not run; what says of what an error is. A refusal is not the
// object's: it is logged once, and what was not shown is tried again after the longest time between two retries.
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

// readLive brings the scope's object to what the API server has.
func (r *reconciler) readLive(ctx context.Context, s *scope) error {
	if err := r.readAgain(ctx, s.object); err != nil {
		return err
	}
	s.trimmed = false
	return nil
}

// readAgain reads obj from the API server and insists that it is the same one.
func (r *reconciler) readAgain(ctx context.Context, obj *unstructured.Unstructured) error {
	uid := obj.GetUID()
	next := r.newObject()
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(obj), next); err != nil {
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
	if r.schemaRefusesConditions.Load() {
		after = status.Legacy(before, after)
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	err := r.sendStatus(ctx, obj, after)
	if ofSchema(err) && !r.schemaRefusesConditions.Load() {
		// A schema made for ansible-operator may list the conditions it allows.
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

// noticeLegacy takes the refusal of a status for one of the whole kind, unless others have written into the status
// before: it may be for what they wrote.
func (r *reconciler) noticeLegacy(obj *unstructured.Unstructured, before map[string]any, err error) {
	const refused = "The CustomResourceDefinition's schema refuses the conditions Ready, Reconciling and Stalled or the summary; " +
		"only Running, Successful and Failure are written"
	if !status.IsOwn(before) {
		r.log.V(1).Info(refused+" for this object", "namespace", obj.GetNamespace(), "name", obj.GetName(), "error", err.Error())
		return
	}
	r.schemaRefusesConditions.Store(true)
	r.log.Info(refused+" from now on", "gvk", r.gvk.String(), "error", err.Error())
}

// countWrite counts a write, but not one that met another client's, which is tried again, or
// of an object that is gone, whose status is of no use.
func (r *reconciler) countWrite(moment metrics.Moment, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.metrics.StatusWrite(r.gvk, moment, err)
	}
}

// sendStatus patches the status of obj to after, and obj to the answer.
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

// unwarned keeps the API server from a warning, with each write, of what the schema
// drops: noticeDroppedSummary says it once.
func unwarned() client.SubResourcePatchOption {
	return &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldValidation: metav1.FieldValidationIgnore}}
}

// noticeDroppedSummary logs if the schema of the kind drops what is written: once, until it is changed.
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

// writeProgress patches the progress of a run of obj, under the resource version
// that obj was read with, and brings obj to the answer. The UID in a patch of a
// subresource is not looked at by the API server; the resource version is what
// keeps a successor of the same name from being taken for the object.
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

// writesStatus is true if the watch manages the status and the kind has one.
func (r *reconciler) writesStatus() bool {
	return r.watch.ManageStatus && r.res.hasStatus
}

func (r *reconciler) logRefusal(s *scope, err error) {
	s.log.Error(err, "Status is refused; check the status schema of the CustomResourceDefinition, admission policies, "+
		"the operator's permissions and the size of the object")
}

// tooLarge recognises that an object is over the API server's or etcd's limit.
// etcd's word for it arrives as an internal error that only its text tells from
// others (etcd/api/v3rpc/rpctypes: ErrRequestTooLarge).
func tooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, "etcdserver: request is too large")
}

// refused tells the answers that are of no passing trouble: the schema, an
// admission policy, a permission or the object's size does not allow the write.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || final(err)
}

// final tells those of refused that will be the same next time. A policy or a
// permission is another's, who may fix it.
func final(err error) bool {
	return ofSchema(err) || apierrors.IsBadRequest(err) || tooLarge(err)
}

// ofSchema recognises that the kind's schema does not allow the status: then
// the API server names the fields. An admission policy that refuses one write
// has the same code, and says nothing of others.
func ofSchema(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "status")
	})
}

// concludeTimeout is how long the end of a run may take to be written. It
// outlives the reconcile's context: a shutdown must not lose a result.
const concludeTimeout = 10 * time.Second
