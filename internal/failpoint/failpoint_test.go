package failpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/test/must"
)

// A failpoint whose name is not in the code would never crash anything, and no other test would notice.
func TestPoints_AreEachAtOnePlaceOfTheProgram(t *testing.T) {
	count := map[string]int{}
	for _, dir := range []string{"cmd", "controller", "runner"} {
		must.Do(t, filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(source), "failpoint.Hit(") {
				return err
			}
			for _, name := range failpoint.Points() {
				count[name] += strings.Count(string(source), `"`+name+`"`)
			}
			return nil
		}))
	}
	for _, name := range failpoint.Points() {
		if count[name] != 1 {
			t.Errorf("%s is at %d places", name, count[name])
		}
	}
}
