package supervise

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// tree is what is known about the processes that descend from one command.
type tree struct {
	root   identity
	cookie string
	// reaper is true if all orphans of the tree become children of this process,
	// and it has no other children.
	reaper bool
	// adopted tells whether a living process is a child of this one that came from
	// the tree; nil if that is not known.
	adopted func(process) bool
	// service is Service of the command.
	service bool
	// group is the control group of the tree; empty if it has none.
	group cgroup
	// members are the processes seen so far that may still exist.
	members map[identity]struct{}
	// sessions are the sessions of all members ever seen.
	sessions map[int]struct{}
	// memory is the highest measured memory of the members together, in bytes.
	memory int64
	// sigkill and processes are the functions of these names, and surveys is [stuckSurveys], except in tests.
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
	// Nothing has waited for the process yet, so its pid is still its own.
	if p, err := readProcess(pid); err == nil {
		t.root = p.identity
		t.add(p)
	}
	return t
}

// newOrphans returns a tree whose root is gone: the root's pid may belong to another process by now.
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

// look updates what is known of the tree, and returns the processes that seem
// to live.
func (t *tree) look() []identity {
	var living []identity
	if t.reaper {
		for _, p := range t.descendants() { // it also reaps zombies, which a long run would accumulate
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

// survey returns the members that live, and reaps zombies that became our
// children because their parents died. decided is false if it is not known whether
// some process is a member.
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
			// If it is still the same process, the cookie or group was its own.
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

// descendants lists the living descendants of this process, which must be the reaper
// of the tree and have no other descendants. It reaps the zombies among this
// process's children. It takes a fraction of the time of a look at all processes,
// which is out of date sooner. It needs the same kernel option as children.
func (t *tree) descendants() []process {
	self, err := readProcess(os.Getpid())
	if err != nil {
		return nil // no file descriptor is left
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

// addChildren adds the children of members, and tells whether there were new ones.
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
		// If the parent is still the same process, it was so when p was read.
		if parent.exists() && t.add(p) {
			added = true
		}
	}
	return added
}

// reap waits for a dead orphan of the tree that became our child. It leaves alone
// the command itself and other processes that this program has started and waits
// for: those lead a session or are no members.
func (t *tree) reap(p process, self int) {
	if p.ppid != self || p.pid == t.root.pid {
		return
	}
	_, member := t.members[p.identity]
	_, session := t.sessions[p.session]
	if t.reaper || member || session && p.session != p.pid {
		// It is dead: this does not block, and an error changes nothing.
		_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
	}
}

const (
	// undecidedSurveys bounds the surveys made because of processes without
	// environment: an execve takes much less time than these surveys, while a
	// stranger's empty environment stays empty.
	undecidedSurveys = 3
	// refusedSurveys bounds the surveys after which no process that is left may be
	// signalled; with the growing pauses they take about a second.
	refusedSurveys = 25
	// stuckSurveys bounds the surveys in a row that find the same killed processes; they
	// take half a minute. Such processes wait in the kernel for a disk or a server.
	stuckSurveys = 600
	// maxPause bounds the pauses between surveys; a killed process takes as
	// long as the kernel needs to tear it down.
	maxPause = 50 * time.Millisecond
)

// kill kills the members until a survey finds none, or the same ones for half a minute,
// and returns how many it killed. One survey is never enough: processes that were just
// forked are found by the next.
//
// No process is frozen first. A process that can be frozen can be killed as well;
// orphans that this creates become children of their reaper, where the next survey
// finds them; and a control group is killed all at once.
func (t *tree) kill() (int, error) {
	defer func() { _ = t.group.remove() }() // it fails if processes are left that may not be killed
	killed := map[identity]struct{}{}
	undecided, refused, stuck, left := 0, 0, 0, 0
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		if t.reaper && childless() {
			return len(killed), nil
		}
		living, decided, err := t.survey()
		if err != nil {
			// Most likely no file descriptor is left, which passes.
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

// childless tells whether this process has no children, dead or alive. If it is
// the reaper of all its descendants, it then has no descendants either. The kernel
// answers for a single moment, which a list of processes cannot do.
func childless() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// sigkill kills exactly this process: the pidfd that os.FindProcess opens refers to
// the process that has the pid then, and the start time tells whether it is this one.
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
