package runner

import (
	"context"
	"crypto/rand"
	_ "embed" // the playbook of the check
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/warm"
)

// NewPool has fork servers for the runs of a [Runner] with the same options, whose
// Warm it becomes. A server is used once it has made a run as it should be.
// onChange is that of [warm.Options]. The pool is to be closed after the Runner.
func NewPool(opts Options, onChange func(error)) *warm.Pool {
	opts = opts.complete()
	return warm.New(warm.Options{
		Without: os.Getenv(warm.WithoutVariable),
		Environ: ansibleenv.WithHome(opts.Environ, os.TempDir()), Runner: opts.Path, Playbook: "ansible-playbook", Supervisor: opts.Supervisor,
		TrustLine: opts.TrustLine, Check: opts.checkServer, Trace: opts.Trace, Idle: opts.WarmIdle, OnChange: onChange,
	})
}

// checkPlaybook is a playbook with a template and a module, which returns what
// it is given.
//
//go:embed check.yml
var checkPlaybook []byte

// checkAnswer is what the module is to return.
const checkAnswer = "FORKED 3"

// checkServer makes a run of the playbook from a server: [warm.Options].Check.
func (o Options) checkServer(ctx context.Context, dir, socket string) error {
	playbook := filepath.Join(dir, "check.yml")
	if err := os.WriteFile(playbook, checkPlaybook, fileMode); err != nil {
		return fmt.Errorf("write its playbook: %w", err)
	}
	o.Warm = nil
	r := New(o)
	defer r.Close()
	var answer string
	res, err := r.Run(ctx, Request{
		ID: "check-" + rand.Text(), Dir: filepath.Join(dir, "check"), Content: Content{Playbook: playbook}, server: socket,
		OnEvent: func(e jobevent.Event) {
			var result struct{ Ping string }
			if e.Kind == jobevent.RunnerOK && json.Unmarshal(e.Data.Res, &result) == nil {
				answer = result.Ping
			}
		},
	})
	switch verdict := res.Verdict(); {
	case err != nil:
		return err
	case !verdict.Success:
		return fmt.Errorf("%s: %s", verdict.Reason, verdict.Message)
	case answer != checkAnswer:
		return fmt.Errorf("the module returns %q instead of %q", answer, checkAnswer)
	case !res.noted(playbookForked):
		return fmt.Errorf("the playbook is not forked: %s", res.Unsuited())
	case res.Modules()[modulesForked] == 0:
		return errors.New("the module is not forked")
	}
	return os.RemoveAll(filepath.Join(dir, "check"))
}

// complete fills in what options leave open.
func (o Options) complete() Options {
	if o.Path == "" {
		o.Path = "ansible-runner"
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.Environ = ansibleenv.Inherited(o.Collections.Environ(o.Temp.environ(o.Environ)))
	if o.Supervisor == nil {
		// Whatever has become of the file since this process started.
		o.Supervisor = []string{"/proc/self/exe", SupervisorCommand}
	}
	return o
}
