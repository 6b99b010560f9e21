package rbac

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Call is a kind of request that a run has made. It names no objects.
type Call struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// Namespaced is true if the request was for one namespace.
	Namespaced bool `json:"namespaced,omitempty"`
	// Owner is the watched kind of the run, as Kind.group.
	Owner string `json:"owner,omitempty"`
	// Owned is true if the object became a dependent of the owner.
	Owned bool `json:"owned,omitempty"`
}

// Recorder appends calls to a file, each kind of call once, one line of JSON for
// each. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	file  *os.File
	known map[Call]bool
}

// OpenRecorder opens or creates the file, readable by its owner only. Calls that
// are in the file already are not written again, so a file can be used across several
// starts of the operator. Two operators may write the same file; calls may then be
// in it twice.
func OpenRecorder(path string) (*Recorder, error) {
	const ownerOnly = 0o600
	// Without O_NONBLOCK, opening a FIFO would wait for its reader.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, ownerOnly)
	if err != nil {
		return nil, fmt.Errorf("open the record of API calls: %w", err)
	}
	r := &Recorder{file: file, known: map[Call]bool{}}
	if err := r.load(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func (r *Recorder) load(path string) error {
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("open the record of API calls: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("open the record of API calls: %s is not a regular file: name another", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("open the record of API calls: %s may be read or written by others (mode %#o): chmod 600 it, or name another file", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(r.file)
	if err != nil {
		return fmt.Errorf("read the record of API calls: %w", err)
	}
	calls, err := parseCalls(path, data)
	if err != nil {
		return err
	}
	for _, c := range calls {
		r.known[c] = true
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		// The last line was cut off when a process ended.
		if err := r.file.Truncate(int64(bytes.LastIndexByte(data, '\n') + 1)); err != nil {
			return fmt.Errorf("repair the record of API calls: %w", err)
		}
	}
	return nil
}

// Record writes a call to the file. After an error, the call is not in the file, and
// is written the next time it occurs.
func (r *Recorder) Record(c Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[c] {
		return nil
	}
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("record an API call: %w", err)
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("record an API call: %w", err)
	}
	r.known[c] = true
	return nil
}

// Close closes the file.
func (r *Recorder) Close() error { return r.file.Close() }

// ReadCalls reads what a [Recorder] has written. An error names the line.
func ReadCalls(path string) ([]Call, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the record of API calls: %w", err)
	}
	return parseCalls(path, data)
}

func parseCalls(path string, data []byte) ([]Call, error) {
	var calls []Call
	lines := bufio.NewReader(bytes.NewReader(data))
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return calls, nil //nolint:nilerr // what has no end of line was cut off
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var c Call
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			return nil, fmt.Errorf("%s:%d: this is not a recorded API call: %w; use a file that --record-api-calls has written", path, number, err)
		}
		if c.Verb == "" || c.Resource == "" {
			return nil, fmt.Errorf("%s:%d: this is not a recorded API call: verb and resource must not be empty", path, number)
		}
		calls = append(calls, c)
	}
}
