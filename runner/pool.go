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

// NewPool returns a pool of fork servers for the runs of a [Runner] with the same options;
// the caller sets it as the Runner's Warm. A server is used after it has passed a check run.
// onChange is OnChange of [warm.Options]. The pool must be closed after the Runner.
func NewPool(opts Options, onChange func(error)) *warm.Pool {
	opts = opts.complete()
	return warm.New(warm.Options{ // the environment must be that of runs, Request.environment: a run head compares them
		Without: os.Getenv(warm.WithoutVariable),
		Environ: ansibleenv.WithHome(ansibleenv.Direct(opts.Environ), os.TempDir()), Runner: opts.Path, Playbook: "ansible-playbook",
		TrustLine: opts.TrustLine, Check: opts.checkServer, Trace: opts.Trace, Content: opts.WarmContent, Idle: opts.WarmIdle, OnChange: onChange,
	})
}

// checkFiles are the playbook of the check run, whose handler prints the parts of checkAnswer,
// and files that the playbook includes.
//
//go:embed check.yml check-included.yml check-kubernetes.yml
var checkFiles embed.FS

// checkAnswer maps each part of the check's playbook to its expected result.
func checkAnswer(kubernetes bool) map[string]string {
	answer := map[string]string{
		"template": "FORKED 3", "loop": "one two", "include": "included", "failing task": "failed", "module": "FORKED", "handler": "handled",
	}
	if kubernetes {
		answer["kubernetes.core"] = "not there"
	}
	return answer
}

// CheckError says why a fork server did not pass its check run, and is not used.
type CheckError struct {
	// Differs names the parts of the run that were not as expected; the names come from a fixed list.
	Differs []string
	why     string
}

// differs returns a [CheckError] for one part of the run.
func differs(part, why string) error {
	return &CheckError{Differs: []string{checkPrefix + part}, why: why}
}

// checkPrefix begins the names of [CheckError.Differs].
const checkPrefix = "self-check: "

func (e *CheckError) Error() string { return e.why }

// checkServer makes the check run from a server; it is Check of [warm.Options].
func (o Options) checkServer(ctx context.Context, dir, socket string, kubernetes bool) error {
	playbook := filepath.Join(dir, "check.yml")
	for _, name := range []string{"check.yml", "check-included.yml", "check-kubernetes.yml"} {
		text, err := checkFiles.ReadFile(name)
		if err == nil && name == "check-kubernetes.yml" && !kubernetes {
			text = nil // without the collection, Ansible does not accept the file
		}
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
		err = checkRun(res, answer, checkAnswer(kubernetes))
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, "check"))
}

// checkRun returns how a check run differs from what is expected; nil if it does not. answer is what its handler printed,
// and wanted what it should print.
func checkRun(res Result, answer, wanted map[string]string) error {
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
	for part, want := range wanted {
		if got := answer[part]; got != want {
			e.Differs = append(e.Differs, checkPrefix+part)
			said = append(said, fmt.Sprintf("the %s gives %q instead of %q", part, got, want))
		}
	}
	if e.Differs == nil {
		// A way with a name is no fault: with these settings Ansible chooses it for all runs.
		ways := res.Modules()
		if len(ways) == 0 || ways[modulesOther] > 0 {
			return differs("module", fmt.Sprintf("a module is not forked (modules by way: %v)", ways))
		}
		return nil
	}
	slices.Sort(e.Differs)
	slices.Sort(said)
	e.why = strings.Join(said, ", ")
	return &e
}

// complete returns the options with their defaults filled in.
func (o Options) complete() Options {
	o.Path = cmp.Or(o.Path, "ansible-runner")
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	o.Environ = ansibleenv.Inherited(o.Collections.Environ(o.Temp.environ(o.Environ)))
	return o
}
