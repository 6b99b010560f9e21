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
// of CPU, which take minutes on a machine with a load of a hundred. To end a server
// sooner would waste that work.
const startLimit = 5 * time.Minute

// logLimit bounds how much of a server's log is read, in bytes; only the last line is used.
const logLimit = 1 << 20

// checkLimit is how long the check run of a server may take. It takes half a second,
// and much longer on a busy machine.
const checkLimit = time.Minute

// cookieSpace is the length of the server's cookie, which forked runs overwrite with
// their own cookies; see python/process.py.
const cookieSpace = 128

// WithoutVariable is the environment variable with the means of forked runs that are
// turned off; see python/switches.py.
const WithoutVariable = "ROLEWRIGHT_WARM_WITHOUT"

// ServerPrefix begins the values of fork servers' cookies; no run's ID begins with it.
const ServerPrefix = "server-"

// titleSpace is the number of bytes reserved for the command lines of forked processes,
// which ps shows.
const titleSpace = 2048

// server is one fork server.
type server struct {
	dir, socket string
	about       about
	// files are the versions that the files on which the server depends had when it was ready.
	files map[string]version

	// The pool's lock protects these. looked is when the last complete check of the files
	// began; looking is closed when the check in progress ends, and nil if there is none.
	runs, inFlight int
	retired        bool
	looked         time.Time
	looking        chan struct{}
	rest           *time.Timer // ends the server when it has been idle

	stop  context.CancelFunc
	ended chan struct{}
	err   error // why the server has ended; valid once ended is closed
}

// about is what a server says about itself.
type about struct {
	Core    string   `json:"core"`
	Differs []string `json:"differs"` // what differs from the tested lines of Ansible
	Workers []string `json:"workers"` // what differs from the tested version of its line, and makes tasks have workers
	PID     int      `json:"pid"`
	// Kubernetes is true if the collection kubernetes.core and the Kubernetes client are installed.
	Kubernetes bool     `json:"kubernetes"`
	Files      []string `json:"files"` // what it has imported and read, or would have if it existed
}

// LineError says that ansible-core is of a line that is not tested and differs in what
// forked runs rely on, so that there is no server, or none without workers.
type LineError struct {
	Core string
	// Differs names what differs from the tested lines.
	Differs []string
	// Workers is true if there is a server all the same, whose tasks all have workers.
	Workers bool
}

func (e *LineError) Error() string {
	if e.Workers {
		return fmt.Sprintf("each task has a worker with ansible-core %s, where this has changed since its line was tested: %s",
			e.Core, strings.Join(e.Differs, ", "))
	}
	return fmt.Sprintf("forked runs are not tested with ansible-core %s, where this has changed that they rely on: %s; --executor-trust-line forks runs anyway",
		e.Core, strings.Join(e.Differs, ", "))
}

// slower returns why all tasks of the server's runs need workers; nil if they do not.
func (s *server) slower() error {
	if len(s.about.Workers) == 0 {
		return nil
	}
	return &LineError{Core: s.about.Core, Differs: s.about.Workers, Workers: true}
}

// startTries is how many servers are started in a row if files change during each
// start: another start is needed while an installation is being changed, and one
// more after Python has compiled files for the first time, or a clock was set back.
const startTries = 4

// errChanged is the error of a start that is to be repeated.
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

// startOne starts a server. The error wraps errChanged if another start is needed.
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

// longestDir is the length limit, in bytes, of the path of a pool's directory: the
// path of a socket below it, /12345/socket, has at most 107 bytes.
const longestDir = 94

// serverDir makes the directory of the next server. Only one server is started at a time.
func (p *Pool) serverDir() (string, error) {
	if p.dir == nil {
		dir, err := lockeddir.Make(p.opts.Dir, dirPrefix)
		if err != nil {
			return "", fmt.Errorf("make the directory of the fork servers: %w", err)
		}
		if len(dir.Name()) > longestDir {
			return "", errors.Join(fmt.Errorf("%s is too long for the path of a socket; set TMPDIR to a shorter one", p.opts.Dir), dir.Remove())
		}
		p.dir = dir
	} else if err := p.dir.Ensure(); err != nil { // a cleaner of temporary files may have removed it
		return "", fmt.Errorf("the directory of the fork servers: %w", err)
	}
	p.made++
	dir := filepath.Join(p.dir.Name(), strconv.Itoa(p.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the server's directory: %w", err)
	}
	return dir, nil
}

// admit returns when the server s may be used. programs are further files on which the
// server depends. If a file has changed while the server started, the server may have
// imported either version; then the error wraps errChanged.
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
	if err := p.opts.Check(ctx, s.dir, s.socket, s.about.Kubernetes); err != nil {
		return fmt.Errorf("self-check: %w", err)
	}
	return nil
}

// writeProgram writes the server's program, and the paths of the content, to its directory.
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

// environ returns the server's environment. Importing Ansible makes a directory for
// temporary files, by default in the home directory, which may be read-only.
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

// run runs the server. It returns when the server has ended, by itself or because ctx
// ended, and nothing is left of it.
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
		Service: true, // the runs that it forks are supervised separately
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
			case <-s.ended: // that is why ctx ended
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

// lostLimit is how long a server whose keeper or supervising process was killed may take
// to end after its first run was cut: all its processes are killed first.
const lostLimit = 30 * time.Second

// lost tells, after a run of the server was cut, whether the server has ended, too. It
// waits until that is known, or ctx ends.
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

// worn returns why the server is to be replaced, apart from changed files; nil if it
// is not to be replaced.
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

// busy keeps the server from being ended because it was idle. It is called under the
// pool's lock.
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
