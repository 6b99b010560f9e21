package campaign

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rolewright/rolewright/test/faults/history"
)

// journal is a file of JSON lines. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the history: %w", err)
	}
	return &journal{file: file}, nil
}

// add writes a line with the time. The first error is returned by close.
func (j *journal) add(line map[string]any) {
	line["boot"], line["time"] = seconds(history.Boot()), time.Now().UTC().Format(time.RFC3339Nano)
	data, err := json.Marshal(line)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.file.Write(append(data, '\n'))
	}
	if j.err == nil {
		j.err = err
	}
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	if j.err != nil {
		return fmt.Errorf("keep the history: %w", j.err)
	}
	return nil
}

// seconds returns an instant in the form that scripts write.
func seconds(i history.Instant) float64 { return time.Duration(i).Seconds() }

func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	return nil
}
