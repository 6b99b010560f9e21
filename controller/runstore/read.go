package runstore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner/rundir"
)

var someID = regexp.MustCompile(`^[0-9a-f][0-9a-f-]{3,}$`)

// Find returns the directory of a run below the runner root by its ID, or by at least
// the first four characters of it. The operator may be running.
func Find(root, id string) (string, error) {
	if !someID.MatchString(id) {
		return "", fmt.Errorf("%.40q is not a run ID: give its first characters, four at least", id)
	}
	found := runDirs(root, id)
	switch len(found) {
	case 0:
		if _, err := os.Stat(filepath.Join(root, runsDir)); err != nil {
			return "", fmt.Errorf("%w; is it the --runner-root of the operator?", err)
		}
		return "", fmt.Errorf("there is no run %s below %s: its artifacts may have been removed (maxRunnerArtifacts)", id, root)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, dir := range found {
		names = append(names, filepath.Base(dir))
	}
	return "", fmt.Errorf("several runs begin with %s: %s", id, strings.Join(names, ", "))
}

// ErrNoEnd says that a run has not ended, or that it is not known how it ended.
var ErrNoEnd = errors.New("the end of the run is not known: it is in progress, or its operator has been killed")

// Read returns what the directory of a run says: what the run was made for and how it ended.
// The error wraps [ErrNoEnd] if the ticket is right but the end is missing.
func Read(dir string) (Ticket, status.Run, error) {
	t, err := readTicket(dir)
	if err == nil && (!rundir.IsID(t.Run) || t.Run != filepath.Base(dir)) {
		err = fmt.Errorf("%s is of another run", filepath.Join(dir, TicketFile))
	}
	if err != nil {
		return Ticket{}, status.Run{}, err
	}
	o, err := readOutcome(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return t, status.Run{}, ErrNoEnd
	}
	if err == nil && o.Run.ID != t.Run {
		err = fmt.Errorf("%s is of another run", filepath.Join(dir, outcomeFile))
	}
	return t, o.Run, err
}

// runDirs returns the directories of the runs, of all clusters, whose IDs begin with start.
func runDirs(root, start string) []string {
	var found []string
	for _, runs := range []string{runsDir, filepath.Join(clustersDir, "*", runsDir)} {
		dirs, _ := filepath.Glob(filepath.Join(root, runs, "*", start+"*")) // the pattern is ours
		found = append(found, dirs...)
	}
	return found
}

// Latest returns the tickets of the latest runs below the runner root whose IDs begin
// with start: the latest first, at most limit of them. It leaves out what cannot be
// read. The operator may be running.
func Latest(root, start string, limit int) []Ticket {
	if strings.ContainsFunc(start, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef-", r) }) {
		return nil // no ID begins like this, and start must not be a pattern
	}
	began := map[string]time.Time{}
	for _, dir := range runDirs(root, start) {
		if info, err := os.Lstat(filepath.Join(dir, TicketFile)); err == nil {
			began[dir] = info.ModTime()
		}
	}
	dirs := slices.SortedFunc(maps.Keys(began), func(a, b string) int { return began[b].Compare(began[a]) })
	var tickets []Ticket
	for _, dir := range dirs[:min(len(dirs), limit)] {
		if t, err := readTicket(dir); err == nil && rundir.IsID(t.Run) && t.Run == filepath.Base(dir) {
			tickets = append(tickets, t)
		}
	}
	return tickets
}
