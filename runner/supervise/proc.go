package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// identity identifies a process for good; a pid alone can be reused.
type identity struct {
	pid   int
	start uint64 // clock ticks since boot
}

// process is one reading of /proc/<pid>/stat.
type process struct {
	identity
	ppid, session int
	threads       int
	// zombie is true for a process whose threads have all ended, and that only
	// waits for its parent.
	zombie bool
	// kernel is true for a kernel thread.
	kernel bool
}

var errMalformed = errors.New("malformed stat")

// readProcess reads the state of a process. An error means that there is no
// such process, or that it may not be seen.
func readProcess(pid int) (process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, data)
}

// Positions of the fields of proc(5) after the command name.
const (
	fieldState   = 0
	fieldPPID    = 1
	fieldSession = 3
	fieldFlags   = 6
	fieldThreads = 17
	fieldStart   = 19
)

// flagKernelThread is PF_KTHREAD of the kernel's sched.h.
const flagKernelThread = 0x00200000

func parseStat(pid int, data []byte) (process, error) {
	// The name stands in parentheses and may itself contain any character.
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	f := strings.Fields(string(rest))
	if !ok || len(f) <= fieldStart {
		return process{}, fmt.Errorf("%w of process %d", errMalformed, pid)
	}
	ppid, err1 := strconv.Atoi(f[fieldPPID])
	session, err2 := strconv.Atoi(f[fieldSession])
	flags, err3 := strconv.ParseUint(f[fieldFlags], 10, 64)
	threads, err4 := strconv.Atoi(f[fieldThreads])
	start, err5 := strconv.ParseUint(f[fieldStart], 10, 64)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return process{}, fmt.Errorf("%w of process %d: %w", errMalformed, pid, err)
	}
	return process{
		identity: identity{pid, start},
		ppid:     ppid,
		session:  session,
		threads:  threads,
		zombie:   (f[fieldState] == "Z" || f[fieldState] == "X") && threads <= 1,
		kernel:   flags&flagKernelThread != 0,
	}, nil
}

// exists tells whether the process still exists, if only as a zombie.
func (id identity) exists() bool {
	p, err := readProcess(id.pid)
	return err == nil && p.identity == id
}

// processes reads all processes that started at or after a time.
func processes(since uint64) ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil && p.start >= since && !p.kernel {
			found = append(found, p)
		}
	}
	return found, nil
}

// children returns the direct children of a process. It needs a kernel with
// CONFIG_PROC_CHILDREN and returns none otherwise.
func children(parent identity) []process {
	dir := "/proc/" + strconv.Itoa(parent.pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []process
	for _, thread := range threads {
		list, err := os.ReadFile(dir + "/" + thread.Name() + "/children")
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			if p, err := readProcess(pid); err == nil && p.ppid == parent.pid {
				found = append(found, p)
			}
		}
	}
	// If the parent's pid was reused meanwhile, these children are a stranger's.
	if !parent.exists() {
		return nil
	}
	return found
}

// hasCookie tells whether the process was started with an environment entry.
// With an empty environment that is not decided: a process in the middle of an
// execve looks like that.
func hasCookie(pid int, cookie string) (has, decided bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, true
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == cookie {
			return true, true
		}
	}
	return false, len(env) > 0
}

// weight returns how much memory processes use together, in bytes: their
// proportional set size, in which a page that n processes share counts 1/n for
// each. What cannot be read does not count.
func weight(of []identity) int64 {
	var sum int64
	for _, id := range of {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(id.pid) + "/smaps_rollup")
		if err != nil || !id.exists() {
			continue
		}
		sum += proportionalSize(data)
	}
	return sum
}

// proportionalSize returns the proportional set size in a smaps_rollup, in bytes; 0 if it has none.
func proportionalSize(rollup []byte) int64 {
	const kibi = 1 << 10
	for line := range bytes.Lines(rollup) {
		rest, ok := bytes.CutPrefix(line, []byte("Pss:"))
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(rest)), "kB")), 10, 64)
		if err != nil {
			return 0
		}
		return n * kibi
	}
	return 0
}
