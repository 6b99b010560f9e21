package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// Handler is Go code that executes one run. It reports and ends like a command.
type Handler func(ctx context.Context, call HandlerCall) (exitCode int)

// HandlerCall is what a handler gets for one run.
type HandlerCall struct {
	// Input is what a command would read from its standard input.
	Input []byte
	// Kubeconfig gives access to the API server, through the API proxy.
	Kubeconfig []byte
	// Reports takes reports as lines of JSON, each line in one write.
	Reports io.Writer
}

// ErrRefused is wrapped by errors of hooks that only a change of the inputs can fix.
var ErrRefused = errors.New("refused")

// hookError marks an error as a hook's.
type hookError struct{ error }

// Unwrap returns the cause.
func (e hookError) Unwrap() error { return e.error }

// handlerRequest returns the request for a run of the named handler.
func (r *reconciler) handlerRequest(s *scope, name string) (runner.Request, error) {
	handler, known := r.opts.Handlers[name]
	if !known {
		return runner.Request{}, fmt.Errorf("%w: the handler %s of the watch of %s is Go code that this program does not have", runner.ErrNotRunnable, name, r.gvk)
	}
	told, err := json.Marshal(r.inputOf(s))
	if err != nil {
		return runner.Request{}, fmt.Errorf("the input of the handler: %w", err)
	}
	access, err := s.access.Kubeconfig()
	if err != nil {
		return runner.Request{}, err
	}
	return runner.Request{
		Content: runner.Content{Function: &runner.Function{
			Name: fmt.Sprintf("the handler %s", name),
			Call: func(ctx context.Context, reports io.Writer) int {
				return handler(ctx, HandlerCall{Input: told, Kubeconfig: access, Reports: reports})
			},
		}},
		MaxBytes: r.opts.RunMaxBytes, Mask: s.masker(s.mask),
		Call: s.access.Call, Redact: func(ctx context.Context, value string) { s.mask.Add(ctx, value) },
	}, nil
}

// contentsOfHandler returns the contents of a watch with a handler: this program.
func contentsOfHandler(w watches.Watch, opts *Options) *contents {
	c := &contents{files: fingerprint.Contents{MaxAge: contentMaxAge}, ofObject: ofObject(w)}
	w.Inputs.Env = slices.Concat([]string{"-*"}, w.Inputs.Env)
	c.fix(w, opts)
	c.addProgram(opts)
	c.nameFiles(func(path string) string { return path })
	return c
}

// addProgram adds this program to the inputs, because its code makes the run or its variables.
func (c *contents) addProgram(opts *Options) {
	sum, err := opts.program()
	c.fixed = append(c.fixed, fingerprint.Part{Group: fingerprint.OfContent, Name: "program", Value: sum})
	c.err = cmp.Or(c.err, err)
}

// programDigest returns the digest of this process's executable.
func programDigest() (string, error) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("fingerprint of the program: %w", err)
	}
	defer program.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return "", fmt.Errorf("fingerprint of the program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// program returns [programDigest], computed at most once.
func (o *Options) program() (string, error) {
	if o.readProgram == nil {
		o.readProgram = sync.OnceValues(programDigest)
	}
	return o.readProgram()
}

// before calls the watch's hooks Before and Vars for the run of s, and returns the extra vars
// that they add. From then on, those that the watch calls secret are masked.
func (r *reconciler) before(ctx context.Context, s *scope) (map[string]any, error) {
	hooks := r.watch.Hooks
	s.life.waits() // hooks give no sign of life
	defer s.life.sign()
	if hooks.Before != nil {
		if err := r.hook(ctx, "Before", func() error { return hooks.Before(ctx, s.object.DeepCopy()) }); err != nil {
			return nil, err
		}
	}
	s.hooked = true
	if hooks.Vars == nil {
		return nil, nil
	}
	var vars map[string]any
	err := r.hook(ctx, "Vars", func() error {
		given, err := hooks.Vars(ctx, s.object.DeepCopy())
		if err != nil {
			return err
		}
		// The hook may keep the map and change it, so it is copied.
		text, err := json.Marshal(given)
		if err != nil {
			return fmt.Errorf("its variables are not valid JSON: %w", err)
		}
		return utiljson.Unmarshal(text, &vars)
	})
	for _, path := range r.watch.SecretVars {
		s.mask.Add(ctx, valuesAt(nil, vars, strings.Split(path, "."))...)
	}
	return vars, err
}

// callAfterHook calls the watch's hook After for the run of s, which has ended as run. An error of
// the hook makes the run a failure, unless the hook was stopped with the operator: then the run is repeated.
func (r *reconciler) callAfterHook(ctx context.Context, s *scope, run *status.Run) {
	hooks := r.watch.Hooks
	if hooks.After == nil || !s.hooked || run.Result == status.Interrupted {
		return
	}
	ctx, life := r.lifetime(ctx, s.settings)
	defer life.end()
	life.waits() // hooks give no sign of life
	mask := s.mask
	if mask == nil { // an earlier process began the run
		mask = r.newMasker(ctx, s)
	}
	err := r.hook(ctx, "After", func() error {
		return hooks.After(ctx, s.object.DeepCopy(), watches.HookEnd{Run: run.ID, Result: string(run.Result), Reason: run.Reason, Message: run.Message})
	})
	switch {
	case err == nil:
	case run.Result == status.Failed:
		s.warnings = append(s.warnings, mask.Mask(err.Error()))
		run.Warnings = bounded(s.warnings)
	default:
		run.RequeueAfter, run.Wait = 0, nil
		run.Drifted, run.Drift = false, "" // only a successful check reports drift
		if said := mask.Mask(err.Error()); interrupted(err) {
			wasInterrupted(s, run, string(status.Interrupted), said)
		} else {
			run.Result, run.Reason, run.Message, run.Attempts = status.Failed, status.ReasonHookFailed, short(said), s.attempts()+1
		}
	}
	run.Finished = r.now()
}

// hook calls a hook, and turns a panic, or the end of its goroutine, into an error.
func (r *reconciler) hook(ctx context.Context, name string, call func() error) (err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = errors.New("it has ended its goroutine (runtime.Goexit)")
		defer func() {
			if p := recover(); p != nil {
				// The value may contain a secret, and is masked in the message of the run. The log has the stack.
				r.log.Error(errors.New("the message of the run says why"), "A hook has panicked", "hook", name, "gvk", r.gvk.String())
				err = fmt.Errorf("it has panicked: %v", p)
			}
		}()
		err = call()
	}()
	<-ended
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return hookError{fmt.Errorf("the hook %s of the watch of %s: %w", name, r.gvk, err)}
}
