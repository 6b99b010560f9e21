package warm

import (
	"bufio"
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rolewright/rolewright/runner/internal/lockeddir"
	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/supervise"
)

//go:embed python/*.py python/tested.json
var program embed.FS

// startLimit is how long a server may take to import everything: two or three seconds
// of CPU, which are minutes on a machine with a load of a hundred. A server that is ended
// then has taken them for nothing.
const startLimit = 5 * time.Minute

// logLimit bounds what is read of a server's log, of which the last line counts.
const logLimit = 1 << 20

// checkLimit is how long the check of a server may take: half a second, and much
// more on a machine that is busy.
const checkLimit = time.Minute

// cookieSpace is the length of the server's cookie, in whose place the cookies
// of runs are written; see python/process.py.
const cookieSpace = 128

// WithoutVariable names the variable of the operator's environment with the means of
// forked runs that are turned off; see python/switches.py.
const WithoutVariable = "ROLEWRIGHT_WARM_WITHOUT"

// ServerPrefix begins the values of the cookies of fork servers; it begins no run's ID.
const ServerPrefix = "server-"

// titleSpace is the room for the command lines of forked processes, as ps shows
// them.
const titleSpace = 2048

// server is one fork server.
type server struct {
	dir, socket string
	about       about
	// files are those that the server depends on, as they were when it was ready.
	files map[string]version

	// The pool's lock protects these. looked is when the last look at the files began
	// that has ended; looking is closed when the one in progress has.
	runs, inFlight int
	retired        bool
	looked         time.Time
	looking        chan struct{}
	rest           *time.Timer // ends it, while it does nothing

	stop  context.CancelFunc
	ended chan struct{}
	err   error // why, once it has ended
}

// about is what a server says of itself.
type about struct {
	Core    string   `json:"core"`
	Differs []string `json:"differs"` // what is another than in the lines of Ansible that were tested
	Workers []string `json:"workers"` // the same of this version in its line, as far as it is why tasks have workers
	PID     int      `json:"pid"`
	Files   []string `json:"files"` // what it has imported and read, or would have
}

// LineError is why there is no server with a line of ansible-core that is not tested.
type LineError struct {
	Core string
	// Differs are what is another than in the lines that are tested.
	Differs []string
	// Workers is true where there is a server, since only means differ that tasks can do without.
	Workers bool
}

func (e *LineError) Error() string {
	if e.Workers {
		return fmt.Sprintf("each task has a worker with ansible-core %s, where this has changed since its line was tested: %s",
			e.Core, strings.Join(e.Differs, ", "))
	}
	return fmt.Sprintf("forked runs are not tested with ansible-core %s, where this has changed that they rely on: %s; --executor-trust-line forks runs all the same",
		e.Core, strings.Join(e.Differs, ", "))
}

// slower is what keeps the server's runs from doing without workers; nil if nothing does.
func (s *server) slower() error {
	if len(s.about.Workers) == 0 {
		return nil
	}
	return &LineError{Core: s.about.Core, Differs: s.about.Workers, Workers: true}
}

// startTries is how many servers are started one after the other because a file
// has changed meanwhile: one, where an installation is being changed, and one
// more where Python has just compiled what it had not, or a clock was put back.
const startTries = 4

// errChanged is why one is started once more.
var errChanged = errors.New("it has changed while the server started")

// start starts a server and returns when it is ready.
func (p *Pool) start() (_ *server, err error) {
	for range startTries {
		var s *server
		if s, err = p.startOne(); !errors.Is(err, errChanged) {
			return s, err
		}
	}
	return nil, err
}

// startOne starts a server. The error is errChanged if another is to be started.
func (p *Pool) startOne() (_ *server, err error) {
	runner, err := exec.LookPath(p.opts.Runner)
	if err != nil {
		return nil, err
	}
	playbook, err := exec.LookPath(p.opts.Playbook)
	if err != nil {
		return nil, err
	}
	python, err := Interpreter(runner, playbook)
	if err != nil {
		return nil, err
	}
	dir, err := p.serverDir()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, socket: filepath.Join(dir, "socket"), ended: make(chan struct{})}
	before := snapshot{at: time.Now()}
	if before.files, err = p.identify(p.ctx, slices.Collect(maps.Keys(p.known))); err == nil {
		err = s.writeProgram(p.opts.Content)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, stop := context.WithCancel(p.ctx)
	s.stop = stop
	p.wg.Go(func() {
		defer stop()
		defer close(s.ended)
		s.err = s.run(ctx, p.opts, python)
	})
	err = p.admit(ctx, s, before, python, runner, playbook)
	if s.files != nil {
		p.known = s.files
	}
	if err != nil {
		stop()
		<-s.ended
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// dirPrefix begins the names of the directories of pools.
const dirPrefix = "rolewright-warm-"

// longestDir is the most bytes that the path of a pool's directory may have:
// that of a socket below it, /12345/socket, has at most 107.
const longestDir = 94

// serverDir makes the directory of the next server. One at a time is started.
func (p *Pool) serverDir() (string, error) {
	if p.dir.File == nil {
		dir, err := lockeddir.Make(p.opts.Dir, dirPrefix)
		if err != nil {
			return "", fmt.Errorf("make the directory of the fork servers: %w", err)
		}
		if len(dir.Name()) > longestDir {
			return "", errors.Join(fmt.Errorf("%s is too long for the path of a socket; set TMPDIR to a shorter one", p.opts.Dir), dir.Remove())
		}
		p.dir = dir
	}
	p.made++
	dir := filepath.Join(p.dir.Name(), strconv.Itoa(p.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the server's directory: %w", err)
	}
	return dir, nil
}

// admit returns when the server s may be used. The programs are files that it depends
// on, too. If a file has changed while the server started, the server may have imported
// either version: then the error is errChanged.
func (p *Pool) admit(ctx context.Context, s *server, before snapshot, programs ...string) (err error) {
	if s.about, err = s.await(ctx); err != nil {
		return err
	}
	if len(s.about.Differs) > 0 && !p.opts.TrustLine {
		return &LineError{Core: s.about.Core, Differs: s.about.Differs}
	}
	if s.files, err = p.identify(ctx, append(s.about.Files, programs...)); err != nil {
		return err
	}
	if name, changed := before.changed(s.files); changed {
		return fmt.Errorf("%s: %w", name, errChanged)
	}
	if p.opts.Check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("it takes too long"))
	defer cancel()
	if err := p.opts.Check(ctx, s.dir, s.socket); err != nil {
		return fmt.Errorf("self-check: %w", err)
	}
	return nil
}

// writeProgram writes the server's program to its directory, and where the content is.
func (s *server) writeProgram(content []string) error {
	names, err := fs.Glob(program, "python/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := program.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.dir, filepath.Base(name)), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the server's program: %w", err)
		}
	}
	directories, err := json.Marshal(content)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "content.json"), directories, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write where the content is: %w", err)
	}
	return nil
}

// environ is the server's environment. Importing Ansible makes a directory for
// temporary files, by default in the home directory, which may be one that can
// only be read.
func (s *server) environ(of []string, without string) []string {
	const localTemp = "ANSIBLE_LOCAL_TEMP="
	if without != "" {
		of = append(slices.Clip(of), WithoutVariable+"="+without)
	}
	if slices.ContainsFunc(of, func(entry string) bool { return strings.HasPrefix(entry, localTemp) }) {
		return of
	}
	return append(slices.Clip(of), localTemp+s.dir)
}

// run runs the server until it ends or ctx does, and nothing is left of it.
func (s *server) run(ctx context.Context, opts Options, python string) error {
	cookie := "ROLEWRIGHT_RUN=" + ServerPrefix + rand.Text()
	supervisor := supervise.NewLauncher()
	defer supervisor.Close()
	exit, err := supervisor.Run(ctx, supervise.Command{
		Path:    python,
		Args:    []string{filepath.Join(s.dir, "server.py"), s.socket, strconv.Itoa(os.Getpid()), strings.Repeat(" ", titleSpace)},
		Env:     s.environ(opts.Environ, opts.Without),
		Cookie:  cookie + strings.Repeat(".", cookieSpace-len(cookie)),
		Output:  filepath.Join(s.dir, "server.log"),
		Record:  filepath.Join(s.dir, "end.json"),
		Service: true, // what it forks is supervised by others
	})
	if err != nil {
		return fmt.Errorf("fork server: %w", err)
	}
	log, _ := plainfile.Read(filepath.Join(s.dir, "server.log"), logLimit) // a convenience
	last := strings.TrimSpace(string(log))
	return fmt.Errorf("exit code %d %s %s", exit.Code, exit.Signal, last[strings.LastIndexByte(last, '\n')+1:])
}

// await asks the server about itself until it answers.
func (s *server) await(ctx context.Context) (about, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := s.ask(ctx)
		if err == nil {
			return a, nil
		}
		select {
		case <-s.ended:
			return a, fmt.Errorf("it does not start: %w", s.err)
		case <-ctx.Done():
			select {
			case <-s.ended: // which is why
				return a, fmt.Errorf("it does not start: %w", s.err)
			default:
				return a, fmt.Errorf("it does not answer: %w", err)
			}
		case <-tick.C:
		}
	}
}

// ask asks the server about itself, and waits for the answer.
func (s *server) ask(ctx context.Context) (about, error) {
	var a about
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	message := []byte(`{"ping":true}`)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)); err != nil {
		return a, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("read the answer: %w", err)
	}
	return a, json.Unmarshal(line, &a)
}

// lostLimit is how long a server may take to end whose keeper or supervising process
// was killed, after the first of its runs: all of its processes are killed before.
const lostLimit = 30 * time.Second

// lost tells of a server of which a run was cut whether that was the server's end, or
// the run's alone. It waits until that is known, or ctx ends.
func (s *server) lost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lostLimit)
	defer cancel()
	if _, err := s.ask(ctx); err == nil {
		return false
	}
	select {
	case <-s.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// worn returns why the server is to be replaced, whatever its files are; nil if it
// is not.
func (s *server) worn(opts Options) error {
	memory, _ := supervise.ResidentMemory(s.about.PID)
	switch {
	case s.runs >= opts.MaxRuns:
		return fmt.Errorf("%w: it has made %d runs: %w", ErrNotReady, s.runs, ErrReplaced)
	case memory > opts.MaxMemory:
		return fmt.Errorf("%w: it has grown beyond %d MiB: %w", ErrNotReady, opts.MaxMemory>>20, ErrReplaced)
	}
	return nil
}

// busy keeps a server that has done nothing from being ended for that. It is called
// under the pool's lock.
func (s *server) busy() {
	if s.rest != nil {
		s.rest.Stop()
	}
}

// endWhenIdle ends a server that is out of use. It is called under the pool's lock.
func (s *server) endWhenIdle() {
	if s.retired && s.inFlight == 0 {
		s.stop()
	}
}
