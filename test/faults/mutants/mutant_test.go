package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuild_RefusesPythonThatDoesNotCompile(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "head.py"), []byte("def run():\n    return 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := parse("broken", "# seen: never\n--- a/head.py\n+++ b/head.py\n@@ -1,2 +1,2 @@\n def run():\n-    return 1\n+    return (1\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.build(t.Context(), root, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "SyntaxError") {
		t.Errorf("the error is %v", err)
	}
}
