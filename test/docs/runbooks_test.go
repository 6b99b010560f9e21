package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

var (
	grepOfLog = regexp.MustCompile(`kubectl logs .*\| grep (.*?)(?: \||$)`)
	grepWord  = regexp.MustCompile(`'([^']+)'|(\w\S*)`)
)

// TestRunbooks_GrepForWhatTheLogSays: the texts for which runbooks search the log are in the program, or come from the API
// server.
func TestRunbooks_GrepForWhatTheLogSays(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"cmd/rolewright", "controller", "internal", "runner"} {
		must.Do(t, filepath.WalkDir(filepath.Join(repository, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		}))
	}
	words := 0
	for _, runbook := range must.Get(filepath.Glob(filepath.Join(repository, "docs/runbooks/*.md")))(t) {
		for _, m := range grepOfLog.FindAllStringSubmatch(string(must.Get(os.ReadFile(runbook))(t)), -1) {
			for _, word := range grepWord.FindAllStringSubmatch(strings.NewReplacer("-e ", "", "-i ", "").Replace(m[1]), -1) {
				words++
				if w := word[1] + word[2]; w != "forbidden" && !strings.Contains(source.String(), w) {
					t.Errorf("%s: no log line has %q", filepath.Base(runbook), w)
				}
			}
		}
	}
	if words < 10 {
		t.Errorf("only %d words were looked for", words)
	}
}
