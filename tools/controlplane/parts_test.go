package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestClaimDir_RefusesWhatIsNotOurs(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{foreign, link} {
		if _, err := claimDir(path); !errors.Is(err, errForeign) {
			t.Errorf("claim %s: error %v, want %v", path, err, errForeign)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.txt")); err != nil {
		t.Errorf("the stranger's file is gone: %v", err)
	}
}
