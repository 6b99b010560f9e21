// Package runner executes Ansible content once: each call of [Runner.Run] makes
// one ansible-runner process in a private data directory of its own, follows
// the job events of the process, and returns when its whole process tree is
// gone.
//
// The package knows nothing of Kubernetes. Its input is a [Request], its output
// a [Result].
//
// # Error or result
//
// A playbook that fails is a [Result], not an error: the run happened, and
// [Result.Verdict] says how it ended. An error means that the run did not
// happen ([ErrUnavailable], a directory that cannot be written) or was cut
// short, and then [context.Cause] of the caller's context says why. After a run
// that was cut short, the Result returned with the error holds what is known.
package runner
