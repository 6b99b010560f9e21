package main

import (
	"os"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestSetAnsiblePaths_FlagBeatsTheEnvironment(t *testing.T) {
	t.Setenv("ANSIBLE_ROLES_PATH", "/from/env")
	t.Setenv("ANSIBLE_COLLECTIONS_PATH", "/from/env")
	o, _ := parse(t, []string{"--ansible-roles-path=/from/flag"}, nil)
	must.Do(t, o.setAnsiblePaths(discard))
	if got := os.Getenv("ANSIBLE_ROLES_PATH"); got != "/from/flag" {
		t.Errorf("ANSIBLE_ROLES_PATH = %q, want the flag's", got)
	}
	if got := os.Getenv("ANSIBLE_COLLECTIONS_PATH"); got != "/from/env" {
		t.Errorf("ANSIBLE_COLLECTIONS_PATH = %q, want it as it was", got)
	}
}
