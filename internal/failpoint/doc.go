// Package failpoint marks the places at which tests interrupt the operator:
// between two steps, where a crash may happen. In the released program a mark
// does nothing; in one built with the tag failpoint, the environment says what
// happens at which mark.
//
// It knows nothing of what the marked code does.
package failpoint

// The environment that a program built with the tag reads.
const (
	// Variable lists what happens where: name[#occurrence]:action, separated by
	// commas. Actions are kill, term and stop (the signals), panic, and
	// sleep=DURATION. The occurrence is 1 if none is given.
	Variable = "ROLEWRIGHT_FAILPOINT"
	// DirVariable names a directory that exists. In it, a file named after each
	// listed mark gets a line with the process's ID each time that the mark is
	// passed. All processes that share the directory count together, so that the
	// action of a mark happens once, no matter which process restarts.
	DirVariable = "ROLEWRIGHT_FAILPOINT_DIR"
	// HistoryVariable names a file that gets a line of JSON for each [Note]; if it is
	// empty, no file is written.
	HistoryVariable = "ROLEWRIGHT_FAILPOINT_HISTORY"
)

// Points returns the names of all marks, in the order in which a run passes them.
func Points() []string {
	return []string{
		// A reconcile up to its run.
		"reconcile.dequeued", "reconcile.opened",
		"finalizer.before-patch", "finalizer.after-patch",
		"begin.before-read", "begin.after-read", "begin.before-write", "begin.after-write",
		"run.admitted",
		// The private data directory.
		"privatedir.made", "privatedir.before-extravars", "privatedir.after-extravars", "privatedir.before-rename", "privatedir.renamed",
		// The supervisor, seen from the operator, and in it.
		"supervisor.before-order", "supervisor.ordered",
		"supervising.before-start", "supervising.started", "supervising.ended", "supervising.before-record", "supervising.recorded",
		// Instead of started and ended, if a fork server starts the run.
		"forked.started", "forked.ended",
		"supervisor.ended",
		// After the run.
		"run.ended", "run.dismissed",
		"conclude.judged", "conclude.pruned", "conclude.written",
		"status.before-patch", "status.after-patch",
		"unwritten.before-write",
		"release.before-patch", "release.after-patch",
		"forget.before-remove", "forget.half-removed", "forget.removed",
		// What another process has left.
		"lost.before-read", "lost.before-reap", "lost.reaped", "lost.found", "lost.before-write",
		"sweep.listed", "sweep.before-remove",
		// The operator itself.
		"lease.before-write", "lease.written", "lease.before-release", "lease.released",
		"shutdown.begun", "shutdown.before-close", "shutdown.closed",
	}
}
