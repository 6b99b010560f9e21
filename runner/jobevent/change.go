package jobevent

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
)

// Change is a task that has changed something on a host, or would change it without check mode.
// Its text is plain: see [Failure].
type Change struct {
	Task Task
	// Diff shows the change, in the lines of a unified diff; empty if the result has no
	// diff, or none that may be shown. All diffs of a summary together have at most 2 KiB;
	// if that is not enough, the last one ends in "…".
	Diff string
	// Withheld is true if a diff must not be shown, should there be one: the task has no_log,
	// or its result is about a Secret.
	Withheld bool
}

const (
	// maxChanges is the largest number of changes that are described.
	maxChanges = 10
	// maxDiff bounds all their diffs together, in bytes; maxDiffLines bounds the texts that are compared.
	maxDiff      = 2 << 10
	maxDiffLines = 500
)

// secretWord is in the result or the arguments of every task that reads or writes a Secret,
// be it an object or a manifest. The diff itself may not contain it: it has only the changed
// fields, and not the kind.
var secretWord = regexp.MustCompile(`\bSecret(List)?\b`)

// noteChange adds the change that a result reports, if there is room.
func (s *Summary) noteChange(d Data) {
	if len(s.Changes) == maxChanges {
		return
	}
	c := Change{Task: s.task(d)}
	c.Withheld = bytes.Contains(d.Res, []byte(`"censored"`)) || secretWord.Match(d.Res) || secretWord.MatchString(d.TaskArgs)
	used := 0
	for _, before := range s.Changes {
		used += len(before.Diff)
	}
	const least = 100 // bytes; a shorter diff is of no use
	if room := maxDiff - used; !c.Withheld && room >= least {
		c.Diff = bound(strings.TrimRight(plain(diffOf(d.Res, true)), "\n"), room)
	}
	s.Changes = append(s.Changes, c)
}

// diffOf returns the diff in a result and, with items, the diffs of those loop items that have changed
// something. An item has no items itself.
func diffOf(res json.RawMessage, items bool) string {
	var diff, results []byte
	fields(res, func(key string, value []byte) {
		switch key {
		case "diff":
			diff = value
		case "results":
			results = value
		}
	})
	var out strings.Builder
	if bytes.HasPrefix(diff, []byte("{")) {
		out.WriteString(renderedDiff(diff))
	}
	elements(diff, func(element []byte) {
		if out.Len() < maxDiff {
			writeDiff(&out, renderedDiff(element))
		}
	})
	if items {
		elements(results, func(item []byte) {
			if out.Len() < maxDiff && changed(item) {
				writeDiff(&out, diffOf(item, false))
			}
		})
	}
	return out.String()
}

func writeDiff(out *strings.Builder, diff string) {
	if out.Len() > 0 && diff != "" && out.Len() < maxDiff {
		out.WriteByte('\n')
	}
	out.WriteString(diff)
}

// renderedDiff returns one diff of a result as text, without file names, which may be
// temporary.
func renderedDiff(diff []byte) string {
	var before, after, prepared string
	fields(diff, func(key string, value []byte) {
		switch key {
		case "before":
			before = compared(value)
		case "after":
			after = compared(value)
		case "prepared":
			prepared = asString(value)
		}
	})
	if prepared != "" {
		return prepared
	}
	for _, side := range []string{before, after} {
		if strings.HasSuffix(side, "…") || strings.Count(side, "\n") > maxDiffLines {
			return "(too large to be shown)"
		}
	}
	_, hunks, _ := strings.Cut(text.Diff("before", "after", before, after), "\n+++ after\n")
	return hunks
}

// compared returns one side of a diff as text. Like Ansible, it shows a value that is not a string as JSON.
func compared(value []byte) string {
	if isNull(value) || value[0] == '"' {
		return asString(value)
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	if decoder.Decode(&tree) != nil {
		return ""
	}
	if linesOf(tree) > maxDiffLines {
		return "…" // indented, it would be far larger than the event
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(tree) // what was decoded can be encoded
	return out.String()
}

// linesOf returns the number of lines of a tree as indented JSON.
func linesOf(tree any) int {
	n := 1
	switch t := tree.(type) {
	case []any:
		for _, v := range t {
			n += linesOf(v)
		}
		n += min(len(t), 1) // the closing bracket, unless it is empty
	case map[string]any:
		for _, v := range t {
			n += linesOf(v)
		}
		n += min(len(t), 1)
	}
	return n
}
