package main

import (
	"slices"
	"testing"
)

func TestParse_ReadsTheHeader(t *testing.T) {
	const files = "--- a/x/y.go\n+++ b/x/y.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parse("name", "# seen: somewhere\n# runner: forked\n# elsewhere: TestX\n"+files)
	if err != nil || m.Seen != "somewhere" || m.Elsewhere != "TestX" || !m.Forked ||
		!slices.Equal(m.files, []string{"x/y.go"}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, text := range []string{files, "# runner: forked\n" + files, "# seen: x\n", "# seen: x\n# plan: y\n" + files} {
		if _, err := parse("name", text); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}
