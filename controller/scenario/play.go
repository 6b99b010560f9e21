package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

const (
	pollInterval = 100 * time.Millisecond
	// againAnnotation asks for a run.
	againAnnotation = "rolewright.dev/reconcile-at"
	// cleanUpPatience limits the deletion of a scenario's namespace.
	cleanUpPatience = 10 * time.Second
	// quietly is how long a step waits before it calls [Player.Waiting].
	quietly = 10 * time.Second
)

// Player plays scenarios, also several at a time. The operator has to be running.
type Player struct {
	Client client.Client
	// Apply applies an object as soon as its kind is served. It uses namespace if the object
	// needs a namespace and names none, and updates the object with the API server's answer.
	Apply func(ctx context.Context, u *unstructured.Unstructured, namespace string) error
	Runs  *Runs
	// Watched reports whether a watch has a kind, in any version.
	Watched func(schema.GroupKind) bool
	// Timeout is the timeout of steps without their own.
	Timeout time.Duration
	// Waiting is called once if an expectation is not met after some seconds; it may be nil.
	Waiting func(object, why string)
}

// Result is how a scenario ended.
type Result struct {
	Path  string
	Took  time.Duration
	Steps []StepResult
}

// StepResult is how a step ended; Err is nil if all is as expected.
type StepResult struct {
	Name string
	Took time.Duration
	Err  error
}

// Failed reports whether a step did not end as expected.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Steps, func(s StepResult) bool { return s.Err != nil })
}

// Play plays the steps of a scenario, up to the first that fails.
func (p *Player) Play(ctx context.Context, s Scenario) Result {
	began := time.Now()
	result := Result{Path: s.Path}
	step := func(name string, do func() error) bool {
		began := time.Now()
		err := do()
		result.Steps = append(result.Steps, StepResult{name, time.Since(began), err})
		return err == nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rolewright-test-"}}
	if err := p.Client.Create(ctx, namespace); err != nil {
		step("namespace", func() error { return err })
		return result
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
		defer cancel()
		_ = p.Client.Delete(ctx, namespace) // if that fails, its name tells what it was for
	}()
	if len(s.Given.All) > 0 && !step("given", func() error { return p.give(ctx, s.Given, namespace.Name) }) {
		return result
	}
	for _, one := range s.Steps {
		if !step(one.Name, func() error { return p.step(ctx, one, namespace.Name) }) {
			break
		}
	}
	result.Took = time.Since(began)
	return result
}

func (p *Player) give(ctx context.Context, objects Objects, namespace string) error {
	for _, u := range objects.All {
		if err := p.Apply(ctx, u.DeepCopy(), namespace); err != nil {
			return fmt.Errorf("%s: %w", name(u), err)
		}
		if !hasStatus(u) {
			continue
		}
		if err := p.setStatus(ctx, in(u, namespace)); err != nil {
			return fmt.Errorf("the status of %s: %w", name(u), err)
		}
	}
	return nil
}

func (p *Player) step(ctx context.Context, s Step, namespace string) (err error) {
	timeout := p.Timeout
	if s.Timeout != nil {
		timeout = s.Timeout.Duration
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if len(s.Apply.All) > 0 && !slices.ContainsFunc(s.Apply.All, p.watched) && (s.Fails != "" || s.Changed != nil || s.Idempotent != nil) {
		return fmt.Errorf("fails, changed and idempotent are about runs, and no watch has the kind of %s: leave them out, or add the kind to watches.yaml", strings.Join(s.Apply.names(), ", "))
	}
	played := p.playControllers(ctx, s.Status, namespace)
	defer func() {
		cancel()
		if why := <-played; err != nil && why != nil {
			err = fmt.Errorf("%w; %w", err, why)
		}
	}()
	for _, u := range s.Apply.All {
		if err := p.apply(ctx, s, u, namespace); err != nil {
			return err
		}
	}
	if err := p.each(ctx, s.Delete, namespace, func(ctx context.Context, u *unstructured.Unstructured) error {
		return client.IgnoreNotFound(p.Client.Delete(ctx, u))
	}); err != nil {
		return err
	}
	if err := p.each(ctx, s.Delete, namespace, p.absent); err != nil {
		return err
	}
	if err := p.each(ctx, s.Expect, namespace, p.expect); err != nil {
		return err
	}
	return p.each(ctx, s.Absent, namespace, p.absent)
}

func (p *Player) watched(u *unstructured.Unstructured) bool {
	return p.Watched(u.GroupVersionKind().GroupKind())
}

// apply applies an object, and waits for its runs if it is watched. If the object does not change by that, apply
// asks for a run, since the runs of earlier steps prove nothing about this one.
func (p *Player) apply(ctx context.Context, s Step, want *unstructured.Unstructured, namespace string) error {
	u, began := want.DeepCopy(), time.Now()
	watched, was := p.watched(u), in(u, namespace)
	if watched {
		_ = p.Client.Get(ctx, client.ObjectKeyFromObject(was), was) // an object that cannot be read has no UID
	}
	if err := p.Apply(ctx, u, namespace); err != nil {
		return fmt.Errorf("apply %s: %w", name(u), err)
	}
	if !watched {
		return nil
	}
	if was.GetUID() == u.GetUID() && was.GetGeneration() == u.GetGeneration() {
		switch paused := controller.Summarize(u, time.Now()).Next == "paused"; {
		case paused && s.Fails == "" && s.Message == "" && s.Changed == nil:
			return nil // no run can start, and none is wanted
		case paused:
			return fmt.Errorf("%s: it is paused: no run comes", name(u))
		}
		if err := p.askAgain(ctx, u); err != nil {
			return fmt.Errorf("%s: %w", name(u), err)
		}
	}
	if err := p.runs(ctx, s, u, began); err != nil {
		return fmt.Errorf("%s: %w", name(u), err)
	}
	return nil
}

// runs waits for a run of the applied object that began after since, and for a second run.
func (p *Player) runs(ctx context.Context, s Step, u *unstructured.Unstructured, since time.Time) error {
	of := object{u.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(u)}
	first, err := p.Runs.await(ctx, of, func(r run) bool {
		return r.Generation == u.GetGeneration() && r.Started.After(since) && r.Result != status.Interrupted
	})
	if err != nil {
		return fmt.Errorf("no run of generation %d has ended in time: %w", u.GetGeneration(), err)
	}
	if err := ended(first, s); err != nil || s.Fails != "" || s.Idempotent != nil && !*s.Idempotent {
		return err
	}
	if err := p.askAgain(ctx, u); err != nil {
		return err
	}
	second, err := p.Runs.await(ctx, of, func(r run) bool {
		return r.Started.After(first.Finished) && r.Result != status.Interrupted
	})
	if err != nil {
		return fmt.Errorf("no second run has ended in time: %w", err)
	}
	if err := ended(second, Step{}); err != nil {
		return fmt.Errorf("the second run: %w", err)
	}
	if second.Counts.Changed > 0 {
		return fmt.Errorf("a second run changes something again: %s; make the tasks change nothing when nothing is to do, or write \"idempotent: false\"",
			strings.Join(second.changed, ", "))
	}
	return nil
}

// ended returns an error if a run did not end as the step wants.
func ended(r run, s Step) error {
	switch {
	case s.Fails == "" && r.Result != status.Succeeded:
		where := ""
		if r.FailedTask != nil {
			where = fmt.Sprintf(" (%s  %s)", r.FailedTask.Name, r.FailedTask.Path)
		}
		return errors.New(text.Uncoloured(fmt.Sprintf("the run did not succeed: %s%s: %s", r.Reason, where, r.Message)))
	case s.Fails != "" && r.Reason != s.Fails:
		return errors.New(text.Uncoloured(fmt.Sprintf("wanted a run that fails with %s, it ended with %s %s", s.Fails, r.Reason, r.Message)))
	case !strings.Contains(r.Message, s.Message):
		return errors.New(text.Uncoloured(fmt.Sprintf("wanted %q in the message, which is: %s", s.Message, r.Message)))
	case s.Changed != nil && r.Counts.Changed != *s.Changed:
		return fmt.Errorf("wanted %d changed tasks, there were %d: %s", *s.Changed, r.Counts.Changed, strings.Join(r.changed, ", "))
	}
	return nil
}

// playControllers keeps the status of the objects as given until ctx is done. Then it sends on the
// channel the last errors that prevented this; nil if there are none.
func (p *Player) playControllers(ctx context.Context, objects Objects, namespace string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		last := make([]error, len(objects.All))
		for len(objects.All) > 0 {
			for i, u := range objects.All {
				if err := p.setStatus(ctx, in(u, namespace)); err != nil && ctx.Err() == nil {
					last[i] = fmt.Errorf("the status of %s is not set: %w", name(u), err)
				} else if err == nil {
					last[i] = nil
				}
			}
			select {
			case <-ctx.Done():
				ended <- errors.Join(last...)
				return
			case <-time.After(pollInterval):
			}
		}
		ended <- nil
	}()
	return ended
}

// setStatus sets the wanted status of an object, for its current generation. The error is a NotFound if the object does
// not exist.
func (p *Player) setStatus(ctx context.Context, want *unstructured.Unstructured) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(want.GroupVersionKind())
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return err
	}
	status := want.DeepCopy().Object["status"].(map[string]any)
	if _, given := status["observedGeneration"]; !given && have.GetGeneration() > 0 {
		status["observedGeneration"] = have.GetGeneration()
	}
	if mismatch(status, have.Object["status"], "") == "" {
		return nil
	}
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return p.Client.Status().Patch(ctx, have, client.RawPatch(types.MergePatchType, data))
}

// askAgain asks for a run of an object.
func (p *Player) askAgain(ctx context.Context, u *unstructured.Unstructured) error {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	data, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{againAnnotation: now}}}) // strings can always be encoded
	return p.Client.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, data))
}

func (p *Player) each(ctx context.Context, objects Objects, namespace string, do func(context.Context, *unstructured.Unstructured) error) error {
	for _, u := range objects.All {
		u = in(u, namespace)
		if err := do(ctx, u); err != nil {
			return fmt.Errorf("%s: %w", name(u), err)
		}
	}
	return nil
}

// expect waits until an object is as wanted.
func (p *Player) expect(ctx context.Context, want *unstructured.Unstructured) error {
	return p.until(ctx, want, func(have *unstructured.Unstructured) string {
		if have == nil {
			return "it does not exist"
		}
		fields := want.DeepCopy()
		unstructured.RemoveNestedField(fields.Object, "metadata", "namespace") // the namespace is right, and may have been filled in
		return strings.TrimPrefix(mismatch(fields.Object, have.Object, ""), ".")
	})
}

// absent waits until an object does not exist.
func (p *Player) absent(ctx context.Context, u *unstructured.Unstructured) error {
	return p.until(ctx, u, func(have *unstructured.Unstructured) string {
		if have == nil {
			return ""
		}
		return fmt.Sprintf("it exists; finalizers: %v", have.GetFinalizers())
	})
}

// until waits until look returns an empty text for the current object. look gets nil if the object does not exist.
func (p *Player) until(ctx context.Context, u *unstructured.Unstructured, look func(*unstructured.Unstructured) string) error {
	key := client.ObjectKeyFromObject(u)
	why := "it could not be read"
	said := time.After(quietly)
	for {
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(u.GroupVersionKind())
		err := p.Client.Get(ctx, key, have)
		if apierrors.IsNotFound(err) {
			have, err = nil, nil
		}
		if err == nil {
			why = look(have)
		} else if ctx.Err() == nil {
			return err
		}
		if err == nil && why == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New(why)
		case <-said:
			if p.Waiting != nil {
				p.Waiting(name(u), why)
			}
		case <-time.After(pollInterval):
		}
	}
}

// in returns a copy of the object, in namespace if the object names none.
func in(u *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	u = u.DeepCopy()
	if u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	return u
}

func name(u *unstructured.Unstructured) string { return u.GetKind() + "/" + u.GetName() }
