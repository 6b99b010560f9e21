package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/warm"
)

// NewPool has fork servers for the runs of a [Runner] with the same options, whose
// Warm it becomes. A server is used once it has made a run as it should be.
// onChange is that of [warm.Options]. The pool is to be closed after the Runner.
func NewPool(opts Options, onChange func(error)) *warm.Pool {
	opts = opts.complete()
	return warm.New(warm.Options{ // the environment is to be that of runs, Request.environment: a run head compares them
		Without: os.Getenv(warm.WithoutVariable),
		Environ: ansibleenv.WithHome(ansibleenv.Direct(opts.Environ), os.TempDir()), Runner: opts.Path, Playbook: "ansible-playbook",
		TrustLine: opts.TrustLine, Check: opts.checkServer, Trace: opts.Trace, Content: opts.WarmContent, Idle: opts.WarmIdle, OnChange: onChange,
	})
}

// checkFiles are a playbook whose last event has the parts of checkAnswer, and a file that it
// includes.
//
//go:embed check.yml check-included.yml
var checkFiles embed.FS

// checkAnswer is what each part of the playbook of the check is to give, by its name.
func checkAnswer() map[string]string {
	return map[string]string{
		"template": "FORKED 3", "loop": "one two", "include": "included", "failing task": "failed", "module": "FORKED", "handler": "handled",
	}
}

// CheckError is why a server is not used whose run was not as it should be.
type CheckError struct {
	// Differs are the parts of the run that were not: a fixed list of names, as [warm.LineError] has others.
	Differs []string
	why     string
}

// differs returns that a part of the run was not as it should be.
func differs(part, why string) error {
	return &CheckError{Differs: []string{checkPrefix + part}, why: why}
}

// checkPrefix begins the names of [CheckError.Differs].
const checkPrefix = "self-check: "

func (e *CheckError) Error() string { return e.why }

// checkServer makes a run of the playbook from a server: [warm.Options].Check.
func (o Options) checkServer(ctx context.Context, dir, socket string) error {
	playbook := filepath.Join(dir, "check.yml")
	for _, name := range []string{"check.yml", "check-included.yml"} {
		text, err := checkFiles.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, fileMode)
		}
		if err != nil {
			return fmt.Errorf("write its playbook: %w", err)
		}
	}
	o.Warm = nil
	r := New(o)
	defer r.Close()
	var answer map[string]string
	res, err := r.Run(ctx, Request{
		ID: "check-" + rand.Text(), Dir: filepath.Join(dir, "check"), Content: Content{Playbook: playbook}, server: socket,
		OnEvent: func(e jobevent.Event) {
			var result struct{ Msg map[string]string }
			if e.Kind == jobevent.RunnerOK && json.Unmarshal(e.Data.Res, &result) == nil && result.Msg != nil {
				answer = result.Msg
			}
		},
	})
	if err == nil {
		err = checkRun(res, answer)
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, "check"))
}

// checkRun returns how a run of the playbook with this answer was not as it should be.
func checkRun(res Result, answer map[string]string) error {
	switch verdict := res.Verdict(); {
	case !verdict.Success:
		return differs("run", string(verdict.Reason)+": "+verdict.Message)
	case !res.noted(playbookForked):
		return differs("run", "the playbook is not forked: "+res.Unsuited())
	case answer == nil:
		return differs("handler", "the handler does not answer")
	}
	var e CheckError
	var said []string
	for part, want := range checkAnswer() {
		if got := answer[part]; got != want {
			e.Differs = append(e.Differs, checkPrefix+part)
			said = append(said, fmt.Sprintf("the %s gives %q instead of %q", part, got, want))
		}
	}
	if e.Differs == nil {
		// Where another way is counted, it is that of all runs with these settings: Ansible chooses it for them, too.
		ways := res.Modules()
		if ways[modulesForked] == 0 && (len(ways) == 0 || ways[modulesOther] > 0) {
			return differs("module", fmt.Sprintf("the module is not forked (modules by way: %v)", ways))
		}
		return nil
	}
	slices.Sort(e.Differs)
	slices.Sort(said)
	e.why = strings.Join(said, ", ")
	return &e
}

// complete fills in what options leave open.
func (o Options) complete() Options {
	o.Path = cmp.Or(o.Path, "ansible-runner")
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.Environ = ansibleenv.Inherited(o.Collections.Environ(o.Temp.environ(o.Environ)))
	return o
}
