package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// bindZapFlags adds the five --zap-… flags of controller-runtime.
func bindZapFlags(o *zap.Options, fs *pflag.FlagSet) {
	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	o.BindFlags(goFlags)
	// Upstream's text names the wrong default.
	goFlags.Lookup("zap-time-encoding").Usage =
		"Zap time encoding (one of 'epoch', 'millis', 'nanos', 'iso8601', 'rfc3339' or 'rfc3339nano'). Defaults to 'rfc3339'."
	fs.AddGoFlagSet(goFlags)
}

// debugWindow is the level of a logger that logs debug messages for debugTime after the process
// gets SIGUSR1.
type debugWindow struct {
	usual         zapcore.LevelEnabler
	open          atomic.Bool
	asked, enough chan os.Signal
}

// debugTime is how long debug messages are logged after SIGUSR1.
const debugTime = 15 * time.Minute

// newDebugWindow makes a debug window the level of o, in addition to the level of the flags. It
// receives the signals from now on.
func newDebugWindow(o *zap.Options) *debugWindow {
	w := &debugWindow{usual: o.Level, asked: make(chan os.Signal, 1), enough: make(chan os.Signal, 1)}
	signal.Notify(w.asked, syscall.SIGUSR1)
	signal.Notify(w.enough, syscall.SIGUSR2)
	if w.usual == nil && o.Development {
		w.usual = zapcore.DebugLevel
	} else if w.usual == nil {
		w.usual = zapcore.InfoLevel
	}
	o.Level = w
	return w
}

// Enabled implements [zapcore.LevelEnabler].
func (w *debugWindow) Enabled(l zapcore.Level) bool {
	return w.usual.Enabled(l) || l >= zapcore.DebugLevel && w.open.Load()
}

// serve opens and closes the window until ctx ends. SIGUSR2 closes it early.
func (w *debugWindow) serve(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("cmd")
	defer signal.Stop(w.asked)
	defer signal.Stop(w.enough)
	var closes <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.asked:
			w.open.Store(true)
			closes = time.After(debugTime)
			log.Info("Debug messages are logged; SIGUSR2 ends that", "for", debugTime.String())
			continue
		case <-w.enough:
		case <-closes:
		}
		if closes = nil; w.open.Swap(false) {
			log.Info("Debug messages are not logged any more")
		}
	}
}

// newLogger returns the program's logger and makes it the one of the libraries
// that log by themselves. Their loggers are process-wide: only the first call
// in a process sets controller-runtime's.
func newLogger(o zap.Options, w io.Writer, more ...uberzap.Option) logr.Logger {
	o.DestWriter = w
	log := zapr.NewLogger(zap.NewRaw(zap.UseFlagOptions(&o)).WithOptions(more...))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

// notice is a log line about the command line or the environment that is
// known before there is a logger.
type notice struct {
	message string
	values  []any
}

func logNotices(log logr.Logger, notices []notice) {
	for _, n := range notices {
		log.Info(n.message, n.values...)
	}
}
