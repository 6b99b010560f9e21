package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/rolewright/rolewright/runner/warm"
)

// NewPool starts a fork server for the runs of a [Runner] with the same options,
// whose Warm it becomes. dir is an empty directory of mode 0700 with a short
// path; onChange is that of [warm.Options]. The pool is to be closed after the
// Runner.
func NewPool(opts Options, dir string, onChange func(error)) (*warm.Pool, error) {
	opts = opts.complete()
	ansibleRunner, err := exec.LookPath(opts.Path)
	playbook, err2 := exec.LookPath("ansible-playbook")
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("%w: %w; %s", ErrUnavailable, err, installIt)
	}
	return warm.New(warm.Options{
		Dir: dir, Environ: opts.Environ, Runner: ansibleRunner, Playbook: playbook, Supervisor: opts.Supervisor, OnChange: onChange,
	}), nil
}

// complete fills in what options leave open.
func (o Options) complete() Options {
	if o.Path == "" {
		o.Path = "ansible-runner"
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.Environ = inherited(o.Environ)
	if o.Supervisor == nil {
		// Whatever has become of the file since this process started.
		o.Supervisor = []string{"/proc/self/exe", SupervisorCommand}
	}
	return o
}
