package watches

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a problem prevents loading.
type Severity string

// The severities. In strict mode most warnings are reported as errors.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing that is wrong, or looks wrong, in a watches file.
type Problem struct {
	// File is the path as it was given to Load.
	File string
	// Pos is the zero value if the problem is with the file as a whole.
	Pos      Position
	Severity Severity
	// Path is the place in the document, such as [2].finalizer.name; empty at
	// the top level.
	Path string
	// Text is the offending text: one line, shortened. It may be empty.
	Text string
	// Message says what is wrong. It can be understood without the other fields.
	Message string
	// Hint says what to write instead. It may be empty.
	Hint string
}

// String renders the problem as compilers do: file:line:column: severity: …
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Pos != (Position{}) {
		fmt.Fprintf(&b, ":%d:%d", p.Pos.Line, p.Pos.Column)
	}
	fmt.Fprintf(&b, ": %s: ", p.Severity)
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Count returns how many of the problems are errors and how many warnings.
func Count(problems []Problem) (errors, warnings int) {
	for _, p := range problems {
		if p.Severity == Error {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// Summary renders the counts for people: "2 errors, 1 warning".
func Summary(problems []Problem) string {
	errors, warnings := Count(problems)
	var parts []string
	for _, n := range []struct {
		count int
		noun  string
	}{{errors, "error"}, {warnings, "warning"}} {
		switch {
		case n.count == 1:
			parts = append(parts, "1 "+n.noun)
		case n.count > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n.count, n.noun))
		}
	}
	if len(parts) == 0 {
		return "no problems"
	}
	return strings.Join(parts, ", ")
}

// sortProblems orders by position, errors before warnings at the same place. The
// sort is stable.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Severity, b.Severity),
		)
	})
}
