package main

import (
	"flag"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// bindZapFlags adds the five --zap-… flags of controller-runtime.
func bindZapFlags(o *zap.Options, fs *pflag.FlagSet) {
	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	o.BindFlags(goFlags)
	// The text upstream names the wrong default.
	goFlags.Lookup("zap-time-encoding").Usage =
		"Zap time encoding (one of 'epoch', 'millis', 'nanos', 'iso8601', 'rfc3339' or 'rfc3339nano'). Defaults to 'rfc3339'."
	fs.AddGoFlagSet(goFlags)
}

// newLogger returns the program's logger and makes it the one of the libraries
// that log by themselves. Their loggers are process-wide: only the first call
// in a process sets controller-runtime's.
func newLogger(o zap.Options, w io.Writer) logr.Logger {
	o.DestWriter = w
	log := zap.New(zap.UseFlagOptions(&o))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

// notice is a log line about the command line or the environment, decided
// before there is a logger.
type notice struct {
	message string
	values  []any
}

func logNotices(log logr.Logger, notices []notice) {
	for _, n := range notices {
		log.Info(n.message, n.values...)
	}
}
