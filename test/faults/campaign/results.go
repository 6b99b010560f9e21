package campaign

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// Each calls do for 0 to n-1, up to parallel at a time, and returns when all calls have.
func Each(parallel, n int, do func(i int)) {
	var all errgroup.Group
	all.SetLimit(max(1, parallel))
	for i := range n {
		all.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = all.Wait() // there are no errors
}

const referencePrefix = "reference-"

// Reference returns the plan of a workload without faults.
func Reference(workload string, replicas int) plan.Plan {
	p := plan.Plan{Name: referencePrefix + workload, Workload: workload, Replicas: max(1, replicas)}
	if replicas > 1 {
		p.Name += "-" + strconv.Itoa(replicas)
	}
	return p
}

// IsReference tells whether the plan with that name is a workload without faults.
func IsReference(name string) bool { return strings.HasPrefix(name, referencePrefix) }

// ReadResults reads a file that [AddResult] has written; it returns none if the file does not exist. An incomplete
// last line is removed: the program was killed while it wrote it.
func ReadResults[T any](path string) ([]T, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []T
	in, whole := bufio.NewReader(file), int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, file.Truncate(whole)
		}
		if err != nil {
			return nil, err
		}
		whole += int64(len(line))
		var result T
		if err := json.Unmarshal(line, &result); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, result)
	}
}

// AddResult appends a line of JSON to a file, and creates the file if necessary.
func AddResult(path string, result any) error {
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
