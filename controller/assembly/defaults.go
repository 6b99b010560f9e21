package assembly

import (
	"time"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/eventlog"
)

// WarmIdle is how long a fork server is kept without a run by default.
const WarmIdle = 10 * time.Minute

// Defaults returns the default settings of an operator. The flags of the command run have the
// same defaults.
func Defaults() controller.Options {
	return controller.Options{
		InjectOwnerRef: true, RunnerRoot: "/tmp/ansible-operator/runner",
		ArtifactsMaxBytes: 1 << 30, ArtifactsMaxAge: -time.Second, RunMaxBytes: 512 << 20,
		ReconcilePeriod: 10 * time.Hour, RetryMin: time.Second, RetryMax: time.Minute,
		ProgressInterval: 5 * time.Second, GracefulShutdown: 30 * time.Second, LogEvents: eventlog.Tasks,
	}
}
