package assembly

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/trace"
	"github.com/rolewright/rolewright/internal/version"
)

// HistoryOptions say how much the history keeps.
type HistoryOptions struct {
	// RunnerRoot is the directory below which the history is stored.
	RunnerRoot string
	// MaxRuns, MaxAge and MaxBytes limit the history. If MaxRuns is 0, there is none.
	MaxRuns  int
	MaxAge   time.Duration
	MaxBytes int64
	// Elected is true if there is a leader election: then the leader opens the history.
	Elected bool
	Log     logr.Logger
}

// NewHistory returns a recorder that records runs in the history and sends traces, and the
// functions that serve both until their context ends. The recorder is nil if neither is wanted.
func NewHistory(ctx context.Context, o HistoryOptions) (*history.Recorder, []func(context.Context) error, error) {
	tracer, err := trace.FromEnvironment(ctx, os.Getenv, version.Version, o.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	store := o.store()
	var serve []func(context.Context) error
	var observer history.Observer
	if store != nil {
		serve = append(serve, store.Serve)
	}
	if tracer != nil {
		observer = tracer
		serve = append(serve, tracer.Serve)
	}
	if len(serve) == 0 {
		return nil, nil, nil
	}
	recorder := history.NewRecorder(store, observer)
	if !o.Elected {
		return recorder, serve, recorder.Lead(ctx) // before the first reader asks
	}
	return recorder, serve, nil
}

// store returns the history's store; nil if none is kept, or its directory cannot be opened.
func (o HistoryOptions) store() *history.Store {
	if o.MaxRuns == 0 {
		return nil
	}
	dir, err := runstore.Dir(o.RunnerRoot, ".history")
	if err != nil {
		o.Log.Error(err, "The history of runs cannot be opened; runs are not recorded")
		return nil
	}
	return history.New(history.Options{
		Path: filepath.Join(dir, "runs.db"), MaxRuns: o.MaxRuns, MaxAge: o.MaxAge, MaxBytes: o.MaxBytes, Log: o.Log,
	})
}
