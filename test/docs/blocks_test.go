package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// block is a fenced block of shell commands in a document.
type block struct {
	document string
	line     int // line of the fence
	lines    []string
	prompted bool // console block: commands begin with "$ ", and their output follows

	notRun     string // why the block is not run here, and what runs it; empty if it is run here
	background bool   // the block stays in the foreground of a terminal until the end of the document
	until      string // shell condition to wait for after a block in the background
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.document, b.line) }

// command is one command of a block, with its continuation lines and here-documents.
type command struct {
	line int
	text string
	want []string // lines of output that the document shows
}

var (
	fence   = regexp.MustCompile("^\\s*```(\\w*)")
	marker  = regexp.MustCompile(`^<!-- (not run|run in the background until): (.+) -->$`)
	hereDoc = regexp.MustCompile(`<<'?(\w+)'?`)
)

// documents returns the pages whose commands are run, as paths in the repository.
func documents(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/reference/*.md", "docs/inside/*.md", "examples/*.md", "examples/*/*.md"} {
		matches := must.Get(filepath.Glob(filepath.Join(repository, pattern)))(t)
		for _, path := range matches {
			relative := must.Get(filepath.Rel(repository, path))(t)
			found = append(found, relative)
		}
	}
	return found
}

// read returns the lines of a document.
func read(t *testing.T, document string) []string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(repository, document)))(t)
	return strings.Split(string(data), "\n")
}

// blocksOf finds the shell blocks of a document.
func blocksOf(document string, lines []string) ([]block, error) {
	var found []block
	for i := 0; i < len(lines); i++ {
		opening := fence.FindStringSubmatch(lines[i])
		if opening == nil {
			continue
		}
		b := block{document: document, line: i + 1, prompted: opening[1] == "console"}
		above := 0
		for i-above-1 >= 0 && strings.TrimSpace(lines[i-above-1]) == "" {
			above++
		}
		if i-above-1 >= 0 {
			b.mark(strings.TrimSpace(lines[i-above-1]))
		}
		for i++; i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), "```"); i++ {
			b.lines = append(b.lines, lines[i])
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s: the block has no end", b)
		}
		if slices.Contains([]string{"console", "sh", "bash", "shell"}, opening[1]) {
			found = append(found, b)
		}
	}
	return found, nil
}

// mark reads the comment above the block, if it is one of ours.
func (b *block) mark(above string) {
	switch m := marker.FindStringSubmatch(above); {
	case m == nil:
	case m[1] == "not run":
		b.notRun = m[2]
	default:
		b.background, b.until = true, m[2]
	}
}

// commands returns the commands of the block in order.
func (b block) commands() ([]command, error) {
	var found []command
	for i := 0; i < len(b.lines); i++ {
		text, first := b.lines[i], b.line+i+1
		if b.prompted {
			prompted := strings.HasPrefix(text, "$ ")
			if !prompted && len(found) == 0 {
				return nil, fmt.Errorf("%s:%d: output before the first command", b.document, first)
			}
			if !prompted {
				found[len(found)-1].want = append(found[len(found)-1].want, text)
				continue
			}
			text = strings.TrimPrefix(text, "$ ")
		}
		for strings.HasSuffix(text, "\\") && i+1 < len(b.lines) {
			i++
			text += "\n" + b.lines[i]
		}
		if here := hereDoc.FindStringSubmatch(text); here != nil {
			for i++; ; i++ {
				if i == len(b.lines) {
					return nil, fmt.Errorf("%s:%d: the here-document has no line %s", b.document, first, here[1])
				}
				text += "\n" + b.lines[i]
				if b.lines[i] == here[1] {
					break
				}
			}
		}
		if strings.TrimSpace(text) != "" {
			found = append(found, command{line: first, text: text})
		}
	}
	return found, nil
}

// shown returns the first line of the document's output that is missing in the real output of a command; empty if none is
// missing. Numbers and the width of columns may differ, and … stands for any rest of a line, or for any lines.
func shown(want []string, got string) string {
	lines := strings.Split(got, "\n")
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			continue
		}
		at := slices.IndexFunc(lines, func(l string) bool {
			begin, cut := strings.CutSuffix(alike(line), "…")
			return alike(l) == begin || cut && strings.HasPrefix(alike(l), begin)
		})
		if at < 0 {
			return line
		}
		lines = lines[at+1:]
	}
	return ""
}

var digits = regexp.MustCompile(`[0-9]+`)

func alike(line string) string {
	return digits.ReplaceAllString(strings.Join(strings.Fields(line), " "), "0")
}
