// Package runner executes Ansible content once: one call of [Runner.Run] is
// one ansible-runner process in a private data directory of its own, followed
// by its job events while it lasts, and gone with its whole process tree when
// the call returns.
//
// The package knows nothing of Kubernetes. What it is told is a [Request];
// what it answers is a [Result].
//
// # Error or result
//
// A playbook that fails is a [Result], not an error: the run happened, and
// [Result.Verdict] says how it ended. An error means that the run did not
// happen ([ErrUnavailable], a directory that cannot be written) or was cut
// short, and then [context.Cause] of the caller's context says why. A run that
// was cut short returns the Result as far as it is known beside the error.
package runner
