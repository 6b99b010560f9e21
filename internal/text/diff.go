package text

import (
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// Diff returns the changes from one text to another as a unified diff, with their names. It is
// empty if only the line feed at the end of one of them is missing.
func Diff(fromName, toName, from, to string) string {
	// The writer is a buffer: there is no error.
	diff, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(from), B: lines(to), FromFile: fromName, ToFile: toName, Context: 3,
	})
	return diff
}

// lines returns the lines of a text, each with a line feed.
func lines(text string) []string { return difflib.SplitLines(strings.TrimSuffix(text, "\n")) }
