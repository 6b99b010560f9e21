// Command fakerunner stands in for ansible-runner where the real one would be
// too slow, or could not be made to do what a test needs. It can also be the command of a watch.
// It understands the arguments that Rolewright passes, writes the artifacts of a play, and behaves
// as the object of the run says: see [behaviour]. It is a separate program
// with few imports, so that it starts as fast as a program can.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// The operator's environment decides what all its runs record.
const (
	// truthEnv names the file for the begin and the end of each run.
	truthEnv = "FAKERUNNER_TRUTH"
	// timesEnv names the file to which fakerunner appends how long it took.
	timesEnv = "FAKERUNNER_TIMES"
	// lendEnv names the directory in which fakerunner writes where the kubeconfig of its
	// run is. The run lasts until that file is removed.
	lendEnv = "FAKERUNNER_LEND"
)

// The exit codes of ansible-runner.
const (
	exitOK          = 0
	exitCrashed     = 1
	exitFailed      = 2
	exitUnreachable = 4
	exitCanceled    = 254
)

func main() { os.Exit(run(os.Args[1:])) }

// run understands the arguments that Rolewright passes: run <dir> … -i <ident>, and --version.
func run(args []string) int {
	began := time.Now()
	if slices.Contains(args, "--version") {
		fmt.Println("2.4.0")
		return exitOK
	}
	if r := newCommand(); r != nil {
		return r.exit(began)
	}
	at := slices.Index(args, "-i")
	if len(args) < 2 || at < 0 || at+1 >= len(args) {
		fmt.Fprintln(os.Stderr, "fakerunner: run <private data dir> -i <ident> expected")
		return exitFailed
	}
	r := &play{dir: args[1], ident: args[at+1], artifacts: filepath.Join(args[1], "artifacts", args[at+1])}
	return r.exit(began)
}

// exit makes the run, which began at a time, and returns its exit code.
func (p *play) exit(began time.Time) int {
	p.term = make(chan os.Signal, 1)
	code, err := p.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakerunner:", err)
		return exitCrashed
	}
	if path := os.Getenv(timesEnv); path != "" {
		_ = appendLine(path, []byte(strconv.FormatInt(time.Since(began).Nanoseconds(), 10)))
	}
	return code
}

// play is one run.
type play struct {
	dir, ident, artifacts string
	term                  chan os.Signal
	object                object
	does                  behaviour
	// events counts the job events that were written, and end is what the artifacts say.
	events int
	end    truth
	// reports is the file for the reports of a command; nil for ansible-runner. message says why the
	// command has failed.
	reports *os.File
	message string
	daemons []*exec.Cmd
}

// run plays the play and returns ansible-runner's exit code.
func (p *play) run() (int, error) {
	signal.Notify(p.term, syscall.SIGTERM)
	var err error
	if p.reports != nil {
		p.object, err = readWhole(os.Getenv("ROLEWRIGHT_OBJECT"))
	} else {
		p.object, err = readObject(filepath.Join(p.dir, "env", "extravars"))
	}
	if err != nil {
		return 0, err
	}
	p.does = p.object.behaviour()
	p.note(truth{Event: "begin"})
	stop := p.beat()
	code, err := p.perform()
	stop()
	p.end.Event, p.end.Code, p.end.Outcome = "end", code, p.does.Outcome
	if err != nil {
		p.end.Outcome = err.Error()
	}
	p.note(p.end)
	return code, err
}

// beat records that the run is alive, until it is stopped.
func (p *play) beat() (stop func()) {
	const every = 50 * time.Millisecond
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				p.note(truth{Event: "beat"})
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// errTerm says that the run was told to stop.
var errTerm = errors.New("terminated")

// perform does what the behaviour says.
func (p *play) perform() (int, error) {
	if p.reports == nil {
		if err := os.MkdirAll(filepath.Join(p.artifacts, "job_events"), 0o700); err != nil {
			return 0, err
		}
	}
	for range p.does.Daemons {
		// A session of its own, like a task that daemonises: only its ancestry and
		// its environment tell which run it belongs to.
		daemon := exec.Command("sleep", "300")
		daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := daemon.Start(); err != nil {
			return 0, err
		}
		p.daemons = append(p.daemons, daemon)
	}
	if err := p.event("playbook_on_start", map[string]any{}); err != nil {
		return 0, err
	}
	tasks := max(1, p.does.Tasks)
	for i := range tasks {
		if err := p.task(i); err != nil {
			return 0, err
		}
		if err := p.sleep(p.does.sleep() / time.Duration(2*tasks)); err != nil {
			return p.finished("canceled", exitCanceled)
		}
		if i == 0 {
			if err := p.work(); err != nil {
				p.does.Outcome = outcomeFailed
				fmt.Fprintln(os.Stderr, "fakerunner:", err)
			}
		}
		if err := p.sleep(p.does.sleep() / time.Duration(2*tasks)); err != nil {
			return p.finished("canceled", exitCanceled)
		}
	}
	if dir := os.Getenv(lendEnv); dir != "" {
		if err := lend(filepath.Join(dir, p.ident), filepath.Join(p.dir, "kubeconfig")); err != nil {
			return 0, err
		}
	}
	return p.finish()
}

// sleep waits for d, or until the run is told to stop, which is an error.
func (p *play) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-p.term:
			if !p.does.IgnoreTerm {
				return errTerm
			}
		}
	}
}

// lend writes the path of the kubeconfig into file, and returns when the file
// has been removed.
func lend(file, kubeconfig string) error {
	if err := os.WriteFile(file+".tmp", []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return err
	}
	for {
		_, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// note appends to the truth log, if there is one.
func (p *play) note(t truth) {
	path := os.Getenv(truthEnv)
	if path == "" {
		return
	}
	t.fill(p)
	line, err := json.Marshal(t)
	if err == nil {
		err = appendLine(path, line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakerunner: truth:", err)
	}
}

// appendLine appends a line in a single write, so that lines stay whole.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
