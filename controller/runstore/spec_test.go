package runstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/test/must"
)

// A spec is returned only while it is certain that it is the one of the last success, and while a run of its object is
// kept.
func TestSpec_IsThatOfTheLastSuccessOrAbsent(t *testing.T) {
	runs, object := filepath.Join(t.TempDir(), runsDir), "11111111-1111-4111-8111-111111111111"
	id := func(n string) string { return "0000000" + n + "-0000-4000-8000-000000000000" }
	s := storeIn(runs, -1)
	shelve(t, runs, object, id("1"), 1, status.Succeeded)
	file := filepath.Join(runs, object, specFile)

	must.Do(t, s.KeepSpec(object, id("1"), []byte(`{"a":1}`)))
	must.Be(t, "after the success", `{"a":1}`, string(s.Spec(object, id("1"))))
	must.Be(t, "mode", os.FileMode(0o600), must.Get(os.Stat(file))(t).Mode())
	must.Do(t, s.KeepSpec(object, id("2"), s.Spec(object, id("1"))))
	must.Be(t, "after a failure", `{"a":1}`, string(s.Spec(object, id("2"))))
	must.Do(t, s.KeepSpec(object, id("4"), s.Spec(object, id("3")))) // run 3 was made by another process
	for _, last := range []string{id("1"), id("3"), id("4"), ""} {
		must.Be(t, "after a run that another process has made", "", string(s.Spec(object, last)))
	}
	must.Do(t, s.KeepSpec(object, id("5"), []byte(`"`+strings.Repeat("x", noteLimit)+`"`)))
	must.Be(t, "of one too large", "", string(s.Spec(object, id("5"))))
	must.Do(t, os.WriteFile(file, []byte(`{"UID":"another","AsOf":"`+id("5")+`","Spec":{}}`), 0o600))
	must.Be(t, "of another object", "", string(s.Spec(object, id("5"))))

	s.Finish(object, id("1"), Retention{Runs: 0, Age: -1})
	if left, err := os.ReadDir(runs); err != nil || len(left) > 0 {
		t.Errorf("without runs there is left %v, %v", left, err)
	}
}
