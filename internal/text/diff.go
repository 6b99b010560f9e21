package text

import (
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// Diff is what makes a text another one, as a unified diff with the names before and
// after. It is empty where only the line feed at the end is missing in one of them.
func Diff(fromName, toName, from, to string) string {
	// The writer is a buffer: there is no error.
	diff, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(from), B: lines(to), FromFile: fromName, ToFile: toName, Context: 3,
	})
	return diff
}

// lines are those of a text, each with a line feed.
func lines(text string) []string { return difflib.SplitLines(strings.TrimSuffix(text, "\n")) }
