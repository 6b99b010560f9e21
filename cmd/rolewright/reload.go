package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/watches"
)

// contentPeriod is how often the files of the content are checked with --watch-content.
// They are polled because notifications do not work everywhere: a mounted ConfigMap changes
// through links, and network disks send none. A change has to rest for one period.
const contentPeriod = 2 * time.Second

// restPatience is how long content may keep changing before that is reported.
const restPatience = time.Minute

// retryPeriod is how often copying the content is tried again after an error that is not the content's.
const retryPeriod = time.Minute

// reload makes the operator use changed content, all of it or nothing.
type reload struct {
	op  *operator
	log logr.Logger

	place contentcopy.Place
	// used is the state of the content in use, seen the state at the last check, and refused
	// the state of content that cannot be used.
	used, seen, refused contentcopy.State
	// again is when content is tried again that was refused for another reason than the content.
	again time.Time
	// broken is why the content in use cannot be read, which can only be so from the start; nil if
	// it can. reported is the last reason that was reported.
	broken   error
	reported string
	// unrest is since when the content has been different at each check; restless is true once
	// that has been reported.
	unrest   time.Time
	restless bool
	warned   []watches.Problem // about the watches file, and logged
}

// newReload makes the first copy of the content. There is no earlier content to keep using,
// so the first copy may be broken: its runs then say how.
func (o *runOptions) newReload(ctx context.Context, op *operator) (*reload, error) {
	r := &reload{op: op, log: op.log.WithName("content")}
	var err error
	for range 10 { // it may be changing, but not for ever
		if err = r.copy(ctx, op.watched); !errors.Is(err, contentcopy.ErrChanging) {
			break
		}
		sleep(ctx, contentPeriod)
	}
	if err != nil {
		return nil, fmt.Errorf("--watch-content: %w", err)
	}
	if r.broken = op.content.Check(ctx); r.broken != nil {
		r.report(r.broken, "Content is broken: it is used as it is, and changes do not take effect until it is fixed")
	}
	r.log.Info("Runs are made of a copy of the content, which is replaced when the content changes", "directories", r.place.Dirs, "copies", contentcopy.Below(o.runnerRoot))
	return r, nil
}

// copy copies the content of watches, and makes the operator use it if it is not broken. The
// first copy is used in any case.
func (r *reload) copy(ctx context.Context, watched []watches.Watch) error {
	content, state, err := contentcopy.Take(ctx, r.op.runnerRoot, r.op.watchesFile, watched)
	if err != nil {
		return err
	}
	if r.used != "" {
		if err = content.Check(ctx); err != nil {
			err = unreadableError{err}
		}
		if now, stateErr := r.place.State(ctx); err == nil && (stateErr != nil || now != r.seen) {
			err = errors.Join(contentcopy.ErrChanging, stateErr) // perhaps the watches file has changed
		}
	}
	if err != nil {
		content.Close()
		return err
	}
	same := r.used != "" && content.Same(r.op.content) && reflect.DeepEqual(watched, r.op.watched)
	r.place, r.used = content.Place(), state
	if same {
		content.Close()
		return errSame
	}
	return r.op.use(watched, content)
}

// unreadableError says what is wrong with the content; it stays wrong until it is changed.
type unreadableError struct{ error }

// errSame is returned if the content was written again without a change.
var errSame = errors.New("the content is the same")

// run checks the content until ctx ends.
func (r *reload) run(ctx context.Context) error {
	defer func() { r.op.content.Close() }()
	for {
		sleep(ctx, contentPeriod)
		if ctx.Err() != nil {
			return nil
		}
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("use changed content: %w", err)
		}
	}
}

// look uses content that has changed and come to rest. It returns no errors of the content, only others.
func (r *reload) look(ctx context.Context) error {
	state, err := r.place.State(ctx)
	switch {
	case err != nil:
		r.report(err, brokenContent)
		return nil
	case state == r.used:
		r.rests()
		r.seen, r.refused = state, ""
		r.report(r.broken, brokenContent)
		return nil
	case state != r.seen:
		r.seen = state
		r.changes(ctx)
		return nil
	case state == r.refused && (r.again.IsZero() || time.Now().Before(r.again)):
		return nil
	}
	watched, err := r.load()
	if err != nil {
		r.rests()
		r.report(err, brokenContent) // it may be about files elsewhere: load runs again at the next look
		return nil
	}
	err = r.copy(ctx, watched)
	var failed useError
	var unreadable unreadableError
	switch {
	case errors.As(err, &failed):
		return err
	case errors.Is(err, contentcopy.ErrChanging):
		r.seen = ""
		r.changes(ctx)
		return nil
	case errors.Is(err, errSame):
		err = nil
	case err == nil:
		r.broken = nil
		r.log.Info("Changed content is in use", "watches", len(watched))
	case errors.As(err, &unreadable):
		r.refused, r.again, r.reported = state, time.Time{}, "" // each change that is not used is reported
	default: // the disk is full, for instance
		r.refused, r.again, r.reported = state, time.Now().Add(retryPeriod), ""
	}
	r.rests()
	r.report(err, brokenContent)
	return nil
}

// load loads the watches file, and logs each warning about it once.
func (r *reload) load() ([]watches.Watch, error) {
	watched, problems, err := r.op.readWatches()
	if err == nil {
		err = errors.Join(r.op.checkPrune(watched), r.op.checkJobs(watched))
	}
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		if !slices.ContainsFunc(r.warned, func(w watches.Problem) bool { return w.String() == p.String() }) {
			r.log.Info(watchesProblem, "problem", p.String())
		}
	}
	r.warned = problems
	return watched, nil
}

// changes reports content that has been changing for too long.
func (r *reload) changes(ctx context.Context) {
	if r.unrest.IsZero() {
		r.unrest = time.Now()
	}
	if r.restless || time.Since(r.unrest) < restPatience {
		return
	}
	file, err := r.place.Newest(ctx)
	r.restless = true
	r.report(errors.Join(fmt.Errorf("content keeps changing, most recently %s: write this file to another directory", file), err),
		"Changed content is not used: the previous content stays in use until all files stop changing")
}

// rests notes that the content did not change between two checks.
func (r *reload) rests() { r.unrest, r.restless = time.Time{}, false }

const brokenContent = "Changed content is broken: the previous content stays in use until it is fixed"

// report logs once what is wrong with the content; err is nil if nothing is.
func (r *reload) report(err error, message string) {
	r.op.Recorder.ContentBroken(err != nil)
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == r.reported:
	case err != nil:
		r.log.Error(err, message)
	default:
		r.log.Info("Content is not broken any more")
	}
	r.reported = text
}

// useError is an error of the controllers that serve the kinds, not of the content.
type useError struct{ error }

// Unwrap returns the reason.
func (e useError) Unwrap() error { return e.error }

// use makes the operator serve the watches, with runs that use the content, from now on.
func (op *operator) use(watched []watches.Watch, content *contentcopy.Copy) error {
	op.mu.Lock()
	defer op.mu.Unlock()
	before := op.content
	op.watched, op.content = watched, content
	op.answered.Store(&watched)
	defer before.Close()
	set := op.probes.set.Load()
	if set == nil || op.ending() {
		return nil // the next set begins with them
	}
	if err := set.Watch(watched, content); err != nil && !op.ending() {
		return useError{err}
	}
	return nil
}

// serves notes the set that serves the kinds, until ending returns true.
func (op *operator) serves(set *controller.Set, ending func() bool) {
	op.probes.set.Store(set)
	op.ending = ending
}
