package history

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Canary is a secret of each object of a campaign: the field canary of its spec,
// which the watches declare as secret. Its runs repeat it wherever they can.
const Canary = "tweety/4711 and+sylvester"

// Leak returns the form of [Canary] that a text contains although it must not; empty if it contains none.
func Leak(text string) string {
	for _, form := range []string{Canary, base64.StdEncoding.EncodeToString([]byte(Canary)), url.QueryEscape(Canary), url.PathEscape(Canary)} {
		if strings.Contains(text, form) {
			return form
		}
	}
	return ""
}

// look records where a text contains the canary.
func (l *loader) look(where, text string) {
	if form := Leak(text); form != "" {
		at := strings.Index(text, form)
		l.h.Leaks = append(l.h.Leaks, fmt.Sprintf("[%s] %s", where, text[max(0, at-100):min(len(text), at+len(form)+20)]))
	}
}

// secrets searches for the canary in what operators have printed and written.
func (l *loader) secrets() error {
	for _, pattern := range []string{"operator-*.log", "ledger*.jsonl", wireFile} {
		files, err := filepath.Glob(l.path(pattern))
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		for _, name := range files {
			file, err := os.Open(name)
			if err != nil {
				return fmt.Errorf("read the history: %w", err)
			}
			defer file.Close() // there are few
			lines := bufio.NewScanner(file)
			lines.Buffer(nil, maxLine)
			for n := 1; lines.Scan(); n++ {
				l.look(fmt.Sprintf("%s, line %d", filepath.Base(name), n), lines.Text())
			}
			if err := lines.Err(); err != nil {
				return fmt.Errorf("read the history: %s: %w", name, err)
			}
		}
	}
	if l.h.End != nil {
		for _, event := range l.h.End.Events {
			l.look("event", string(event))
		}
	}
	return nil
}

// secrets is I13: a secret occurs nowhere outside of its object and the runs.
func (c *checker) secrets() {
	for _, leak := range c.h.Leaks {
		c.add("I13", "", "", "a secret value is known where it must not be", leak)
	}
}
