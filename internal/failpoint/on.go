//go:build failpoint

package failpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hit marks a place; see [Points]. If the environment asks for an action there, Hit performs it,
// and then returns, unless the action ends the process. An invalid environment causes a panic:
// a test that interrupts nothing proves nothing.
func Hit(name string) {
	for entry := range strings.SplitSeq(os.Getenv(Variable), ",") {
		place, action, _ := strings.Cut(strings.TrimSpace(entry), ":")
		point, number, _ := strings.Cut(place, "#")
		if point != name {
			continue
		}
		occurrence := 1
		if number != "" {
			var err error
			if occurrence, err = strconv.Atoi(number); err != nil {
				panic(fmt.Sprintf("%s: %q: %v", Variable, entry, err))
			}
		}
		if pass(name, place) == occurrence {
			act(entry, action)
		}
	}
}

// Note adds a line to the history: the given fields, the time by the wall clock and by the
// boot clock that all processes share, and the fields of the JSON file ticket, if it
// exists.
func Note(ticket string, line map[string]any) {
	path := os.Getenv(HistoryVariable)
	if path == "" {
		return
	}
	if data, err := os.ReadFile(ticket); err == nil {
		_ = json.Unmarshal(data, &line) // a test may have damaged it
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		panic(fmt.Sprintf("failpoint: read the clock: %v", err))
	}
	line["time"], line["boot"] = time.Now(), boot.Nano()
	text, err := json.Marshal(line)
	if err != nil {
		panic(fmt.Sprintf("failpoint: encode a note: %v", err))
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(fmt.Sprintf("failpoint: %v", err))
	}
	defer file.Close()
	if _, err := file.Write(append(text, '\n')); err != nil { // in one write, so that lines of several processes stay whole
		panic(fmt.Sprintf("failpoint: %v", err))
	}
}

// Environ returns the environment of a process that inherits only what this
// package reads.
func Environ() []string {
	environ := []string{}
	for _, name := range []string{Variable, DirVariable, HistoryVariable} {
		if value, ok := os.LookupEnv(name); ok {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

// pass counts that a mark was passed, and returns how often it was.
func pass(name, place string) int {
	file, err := os.OpenFile(filepath.Join(os.Getenv(DirVariable), place), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err))
	}
	defer file.Close() // which unlocks it
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err))
	}
	if _, err := fmt.Fprintln(file, os.Getpid()); err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err))
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err))
	}
	return bytes.Count(data, []byte{'\n'})
}

// act performs an action.
func act(entry, action string) {
	kind, argument, _ := strings.Cut(action, "=")
	signals := map[string]syscall.Signal{"kill": syscall.SIGKILL, "term": syscall.SIGTERM, "stop": syscall.SIGSTOP}
	switch {
	case signals[kind] != 0:
		if err := syscall.Kill(os.Getpid(), signals[kind]); err != nil {
			panic(fmt.Sprintf("failpoint %s: %v", entry, err))
		}
		if kind == "kill" {
			select {} // the signal is on its way
		}
	case kind == "panic":
		panic("failpoint " + entry)
	case kind == "sleep":
		d, err := time.ParseDuration(argument)
		if err != nil {
			panic(fmt.Sprintf("%s: %q: %v", Variable, entry, err))
		}
		time.Sleep(d)
	default:
		panic(fmt.Sprintf("%s: %q: unknown action", Variable, entry))
	}
}
