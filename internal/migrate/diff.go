package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// contextLines is how many lines a diff has around a change.
const contextLines = 3

// piece are the lines from start to end, which are replaced.
type piece struct {
	start, end int
	lines      []string
}

// Diff is all that a plan changes, as patch reads it.
func (p Plan) Diff() string {
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(p.edits)) {
		fmt.Fprintf(&out, "--- a/%s\n+++ b/%[1]s\n", path)
		lines := splitLines(p.texts[path])
		writeHunks(&out, lines, pieces(p.texts[path], lines, sorted(p.edits[path])))
	}
	return out.String()
}

// pieces are the lines that edits concern; lines that follow each other are in one piece.
func pieces(text string, lines []string, edits []edit) []piece {
	var all []piece
	line, begins := 0, 0 // the line of the edit, and where it begins in the text
	for i := 0; i < len(edits); {
		e := edits[i]
		for line < len(lines) && begins+len(lines[line]) <= e.start {
			begins += len(lines[line])
			line++
		}
		if e.start == e.end && e.start == begins && strings.HasSuffix(e.text, "\n") {
			all = join(all, piece{line, line, splitLines(e.text)})
			i++
			continue
		}
		// What is replaced is in one line, the last one if it is at the end.
		if line == len(lines) {
			line--
			begins -= len(lines[line])
		}
		end := begins + len(lines[line])
		var here []edit
		for ; i < len(edits) && (edits[i].start < end || edits[i].start == len(text)); i++ {
			here = append(here, edit{edits[i].start - begins, edits[i].end - begins, edits[i].text})
		}
		all = join(all, piece{line, line + 1, splitLines(edited(text[begins:end], here))})
	}
	return all
}

func join(all []piece, p piece) []piece {
	if last := len(all) - 1; last >= 0 && all[last].end == p.start {
		all[last].end, all[last].lines = p.end, append(all[last].lines, p.lines...)
		return all
	}
	return append(all, p)
}

func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		return lines[:len(lines)-1]
	}
	return lines
}

// writeHunks writes pieces with the lines around them; those that are close are in one hunk.
func writeHunks(out *strings.Builder, lines []string, all []piece) {
	added := 0
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1].start-all[last].end <= 2*contextLines {
			last++
		}
		from, to := max(0, all[i].start-contextLines), min(len(lines), all[last].end+contextLines)
		var body strings.Builder
		at, more := from, 0
		for _, p := range all[i : last+1] {
			writeLines(&body, " ", lines[at:p.start])
			writeLines(&body, "-", lines[p.start:p.end])
			writeLines(&body, "+", p.lines)
			at, more = p.end, more+len(p.lines)-(p.end-p.start)
		}
		writeLines(&body, " ", lines[at:to])
		fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n%s", from+1, to-from, from+1+added, to-from+more, body.String())
		added += more
		i = last + 1
	}
}

func writeLines(out *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		out.WriteString(sign + line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
