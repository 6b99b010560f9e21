package main

import (
	"slices"
	"testing"
)

func TestParse_ReadsTheHeader(t *testing.T) {
	const files = "--- a/x/y.go\n+++ b/x/y.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parse("name", "# seen: somewhere\n# plan: create\n# plan: matrix/a\n# elsewhere: TestX\n"+files)
	if err != nil || m.Seen != "somewhere" || m.Elsewhere != "TestX" || !slices.Equal(m.Plans, []string{"create", "matrix/a"}) ||
		!slices.Equal(m.files, []string{"x/y.go"}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, text := range []string{files, "# seen: x\n" + files, "# seen: x\n# plan: y\n", "# plans: y\n" + files} {
		if _, err := parse("name", text); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}
