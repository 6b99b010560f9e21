package main

import (
	"os"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestSearchPath_IsWhereAnsibleLooks(t *testing.T) {
	tests := []struct {
		name        string
		env         map[string]string
		roles       []string
		collections []string
	}{
		{
			name:        "nothing set",
			env:         map[string]string{"HOME": "/home/u"},
			roles:       []string{"/home/u/.ansible/roles", "/usr/share/ansible/roles", "/etc/ansible/roles"},
			collections: []string{"/home/u/.ansible/collections", "/usr/share/ansible/collections"},
		},
		{
			name:        "no home",
			roles:       []string{"/usr/share/ansible/roles", "/etc/ansible/roles"},
			collections: []string{"/usr/share/ansible/collections"},
		},
		{
			name:        "set, with a tilde and an empty element",
			env:         map[string]string{"HOME": "/h", "ANSIBLE_ROLES_PATH": "~/r::rel", "ANSIBLE_COLLECTIONS_PATH": "/c"},
			roles:       []string{"/h/r", "rel"},
			collections: []string{"/c"},
		},
		{
			name:        "the plural of old",
			env:         map[string]string{"ANSIBLE_COLLECTIONS_PATHS": "/old"},
			roles:       []string{"/usr/share/ansible/roles", "/etc/ansible/roles"},
			collections: []string{"/old"},
		},
		{
			name:        "the singular wins",
			env:         map[string]string{"ANSIBLE_COLLECTIONS_PATH": "/new", "ANSIBLE_COLLECTIONS_PATHS": "/old"},
			roles:       []string{"/usr/share/ansible/roles", "/etc/ansible/roles"},
			collections: []string{"/new"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lookup := func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }
			must.Be(t, "roles", tt.roles, rolesDirs(lookup))
			must.Be(t, "collections", tt.collections, collectionsDirs(lookup))
		})
	}
}

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
