package controller

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolewright/rolewright/controller/status"
)

// showStuck writes into the status why the finalizer of an object cannot be added or, if the object is being deleted,
// removed. It writes once for each answer of the API server, but not for errors that pass by themselves. If it cannot
// write, only the log has the reason.
func (r *reconciler) showStuck(ctx context.Context, s *scope, why error) {
	held := heldRun{generation: -1, stuck: short(why.Error())}
	var answer apierrors.APIStatus
	passes := !errors.As(why, &answer) || apierrors.IsConflict(why) || apierrors.IsTooManyRequests(why) || apierrors.IsTimeout(why) ||
		apierrors.IsServerTimeout(why) || apierrors.IsServiceUnavailable(why)
	if s.memory.held == held || !r.writesStatus() || passes {
		return
	}
	shown, err := r.show(ctx, s, "record what the object waits for", func(st map[string]any) map[string]any {
		return status.Stuck(st, s.object.GetGeneration(), s.deleting, held.stuck, r.now())
	})
	if shown {
		s.memory.held = held
	}
	if err != nil {
		s.log.V(1).Info("The status does not say why the object is stuck", "error", err.Error())
	}
}
