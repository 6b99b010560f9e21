package supervise

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// tree is what is known of the processes that descend from one command.
type tree struct {
	root   identity
	cookie string
	// reaper is true if all orphans of the tree become children of this
	// process, which has no others.
	reaper bool
	// adopted tells of a living process whether it is a child of this one that
	// came from the tree; nil if that is not known.
	adopted func(process) bool
	// service is that of the command.
	service bool
	// group is the control group of the tree, if it has one.
	group cgroup
	// members are the processes seen so far that may still exist.
	members map[identity]struct{}
	// sessions are the sessions of those ever seen.
	sessions map[int]struct{}
	// memory is the most that the members were seen to take.
	memory int64
	// sigkill and processes are those functions, and surveys is [stuckSurveys], but in tests.
	sigkill   func(identity) error
	processes func(since uint64) ([]process, error)
	surveys   int
}

func newTree(pid int, cookie string) *tree {
	t := &tree{
		root:     identity{pid: pid},
		cookie:   cookie,
		members:  map[identity]struct{}{},
		sessions: map[int]struct{}{pid: {}}, // it was started with setsid
		sigkill:  sigkill, processes: processes, surveys: stuckSurveys,
	}
	// No one has waited for the process yet, so that its pid is still its own.
	if p, err := readProcess(pid); err == nil {
		t.root = p.identity
		t.add(p)
	}
	return t
}

// newOrphans is a tree whose root is gone: its pid may be anybody's by now.
func newOrphans(cookie string) *tree {
	return &tree{
		cookie: cookie, members: map[identity]struct{}{}, sessions: map[int]struct{}{},
		sigkill: sigkill, processes: processes, surveys: stuckSurveys,
	}
}

// add notes a member and tells whether it is new.
func (t *tree) add(p process) bool {
	if _, ok := t.members[p.identity]; ok {
		return false
	}
	t.members[p.identity] = struct{}{}
	t.sessions[p.session] = struct{}{}
	return true
}

// look brings what is known of the tree up to date, and returns the processes
// that seem to live.
func (t *tree) look() []identity {
	var living []identity
	if t.reaper {
		for _, p := range t.descendants() { // waits for the dead, which a long run would collect
			living = append(living, p.identity)
		}
		return living
	}
	t.sample()
	for id := range t.members {
		living = append(living, id)
	}
	return living
}

// sample notes the descendants of the members, and forgets members that are
// gone.
func (t *tree) sample() {
	queue := make([]identity, 0, len(t.members))
	for id := range t.members {
		if !id.exists() {
			delete(t.members, id)
			continue
		}
		queue = append(queue, id)
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		for _, child := range children(id) {
			if t.add(child) {
				queue = append(queue, child.identity)
			}
		}
	}
}

// survey returns the members that live, and reaps those dead ones that are our
// children because their parents died and we are their reaper. It is not
// decided whether that is all when a process could not be judged.
func (t *tree) survey() (living []process, decided bool, err error) {
	if t.reaper {
		if living := t.descendants(); len(living) > 0 {
			return living, true, nil
		}
	}
	all, err := t.processes(t.root.start)
	if err != nil {
		return nil, false, err
	}
	self := os.Getpid()
	all = slices.DeleteFunc(all, func(p process) bool { return p.pid == self })
	decided = true
	grouped := t.group.pids()
	for _, p := range all {
		if p.zombie {
			t.reap(p, self)
			continue
		}
		has, ok := hasCookie(p.pid, t.cookie)
		switch {
		case t.reaper && p.ppid == self, t.adopted != nil && t.adopted(p):
			t.add(p)
		case has || grouped[p.pid]:
			// Still being itself, it has had its pid all the time.
			if p.exists() {
				t.add(p)
			}
		}
		decided = decided && ok
	}
	for t.addChildren(all) {
	}
	for _, p := range all {
		if _, ok := t.members[p.identity]; ok && !p.zombie {
			living = append(living, p)
		}
	}
	return living, decided, nil
}

// descendants lists those of this process, which is the reaper of the tree and
// has no others; of the dead ones it waits for those that are its children. It
// takes a fraction of the time of looking at all processes, in which many a
// process is somewhere else already. It needs what children needs.
func (t *tree) descendants() []process {
	self, err := readProcess(os.Getpid())
	if err != nil {
		return nil // out of file descriptors
	}
	var living []process
	queue := []process{self}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for _, p := range children(parent.identity) {
			if p.zombie {
				t.reap(p, self.pid)
				continue
			}
			living = append(living, p)
			queue = append(queue, p)
		}
	}
	return living
}

// addChildren notes those that are children of members, and tells whether
// there were any.
func (t *tree) addChildren(all []process) bool {
	byPID := make(map[int]identity, len(t.members))
	for id := range t.members {
		byPID[id.pid] = id
	}
	added := false
	for _, p := range all {
		parent, ok := byPID[p.ppid]
		if _, member := t.members[p.identity]; !ok || member || p.zombie {
			continue
		}
		// The parent still being itself proves that it was so when p was read.
		if parent.exists() && t.add(p) {
			added = true
		}
	}
	return added
}

// reap waits for a dead orphan of the tree that became our child. The command
// itself, and whatever else this program has started and waits for, is left
// to what started it: those lead a session or are no members.
func (t *tree) reap(p process, self int) {
	if p.ppid != self || p.pid == t.root.pid {
		return
	}
	_, member := t.members[p.identity]
	_, session := t.sessions[p.session]
	if t.reaper || member || session && p.session != p.pid {
		// It is dead: this does not block, and failing leaves it as it is.
		_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
	}
}

const (
	// undecidedSurveys bounds the surveys made because of processes without
	// environment: an execve is over in well under that many milliseconds,
	// while a stranger's empty environment stays empty.
	undecidedSurveys = 3
	// refusedSurveys bounds those in which everybody left may not be
	// signalled; with the growing pauses it amounts to about a second.
	refusedSurveys = 25
	// stuckSurveys bounds those in a row that find the same processes, which are killed
	// already: half a minute. The kernel waits for a disk or a server with each of them.
	stuckSurveys = 600
	// maxPause bounds the pauses between surveys; a killed process takes as
	// long as the kernel needs to tear it down.
	maxPause = 50 * time.Millisecond
)

// kill kills the members until a survey finds none, or the same ones for half a
// minute, and returns how many there were. One pass is never enough: what was just born is seen by the next.
//
// No process is frozen first. What can be stopped can be killed as well, and those
// that are orphaned in between come to their reaper, where the next pass finds
// them; a control group kills all at once.
func (t *tree) kill() (int, error) {
	defer func() { _ = t.group.remove() }() // it is empty, or keeps what may not be killed
	killed := map[identity]struct{}{}
	undecided, refused, stuck, left := 0, 0, 0, 0
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		if t.reaper && childless() {
			return len(killed), nil
		}
		living, decided, err := t.survey()
		if err != nil {
			// Most likely out of file descriptors, which passes.
			if refused++; refused > refusedSurveys {
				return len(killed), fmt.Errorf("%w: %w", ErrUnseen, err)
			}
			time.Sleep(pause)
			continue
		}
		if len(living) == 0 && len(t.group.pids()) == 0 && !t.reaper {
			if undecided++; decided || undecided > undecidedSurveys {
				return len(killed), nil
			}
		}
		t.group.kill()
		var denied []int
		before := len(killed)
		for _, p := range living {
			if err := t.sigkill(p.identity); errors.Is(err, os.ErrPermission) {
				denied = append(denied, p.pid)
				continue
			}
			killed[p.identity] = struct{}{}
		}
		if len(denied) > 0 && len(denied) == len(living) {
			if refused++; refused > refusedSurveys {
				return len(killed), fmt.Errorf("%w: no permission to kill %v", ErrSurvivors, denied)
			}
		}
		if stuck++; len(living) == 0 || len(living) != left || len(killed) > before {
			stuck = 0
		}
		if left = len(living); stuck > t.surveys {
			return len(killed), fmt.Errorf("%w: no end of %v after SIGKILL", ErrSurvivors, pidsOf(living))
		}
		time.Sleep(pause)
	}
}

func pidsOf(of []process) []int {
	var pids []int
	for _, p := range of {
		pids = append(pids, p.pid)
	}
	return pids
}

// childless tells whether this process has no children, dead or alive. If it
// is the reaper of all its descendants, it has none of these either: the
// kernel says so at one moment, which no list of processes does.
func childless() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// sigkill kills exactly this process: the pidfd that os.FindProcess opens
// holds on to the process that has the pid then, and the start time tells who that is.
func sigkill(id identity) error {
	p, err := os.FindProcess(id.pid)
	if err != nil {
		return fmt.Errorf("find process %d: %w", id.pid, err)
	}
	defer func() { _ = p.Release() }()
	if !id.exists() {
		return nil
	}
	if err := p.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", id.pid, err)
	}
	return nil
}
