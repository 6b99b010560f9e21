package act

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
)

// Objects returns a client for the objects of o's kind and namespace, with the permissions of the
// page's reader. The error wraps page.ErrNotFound if there is no such kind.
type Objects func(o history.Object) (dynamic.ResourceInterface, error)

// Of returns clients as [Objects], for callers that know only the interface.
func Of(clients func(o history.Object) (dynamic.ResourceInterface, error)) page.Objects {
	return Objects(clients)
}

// Get implements page.Objects.
func (f Objects) Get(ctx context.Context, o history.Object) (map[string]any, error) {
	objects, err := f(o)
	if err != nil {
		return nil, err
	}
	obj, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, page.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	return obj.Object, nil
}

// Act implements page.Objects.
func (f Objects) Act(ctx context.Context, o history.Object, asked page.Asked) (changed bool, err error) {
	do := asked.Do
	action, known := map[string]Action{
		"reconcile": Reconcile(time.Now()), "suspend": Suspend(time.Now(), 0), "suspend-1h": Suspend(time.Now(), time.Hour), "resume": Resume(), "cancel": Cancel(asked.Run),
	}[do]
	if !known {
		return false, fmt.Errorf("there is no action %q", do)
	}
	objects, err := f(o)
	if err != nil {
		return false, err
	}
	obj, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the object: %w", err)
	}
	if asked.UID != "" && asked.UID != string(obj.GetUID()) {
		return false, fmt.Errorf("another object has the name now: %w", page.ErrChanged)
	}
	changes, _ := action(obj)
	if is := controller.Summarize(obj, time.Now()); do == "cancel" && is.Active != nil && ended(is, asked.Run) {
		return false, fmt.Errorf("run %.8s has ended, and another one is in progress: %w", asked.Run, page.ErrChanged)
	}
	if len(changes) == 0 {
		return false, nil
	}
	if _, err := Annotate(ctx, objects, obj, changes); err != nil {
		return false, fmt.Errorf("annotate the object: %w", err)
	}
	return true, nil
}
