package assembly

import (
	"runtime"
	"testing"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestRunsAtATime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	kinds := func(limits ...int) (all []watches.Watch) {
		for _, n := range limits {
			all = append(all, watches.Watch{MaxConcurrentReconciles: n})
		}
		return all
	}
	for name, tc := range map[string]struct {
		asked   int
		watched []watches.Watch
		want    int
	}{
		"by the CPUs":                {0, kinds(2, 2), 8},
		"a kind may have more":       {0, kinds(2, 30, 2), 30},
		"no kinds":                   {0, nil, 8},
		"asked for":                  {3, kinds(30), 3},
		"asked for, more than usual": {100, kinds(2), 100},
	} {
		must.Be(t, name, tc.want, RunsAtATime(tc.asked, tc.watched))
	}
}

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
			must.Be(t, "roles", tt.roles, RolesDirs(lookup))
			must.Be(t, "collections", tt.collections, CollectionsDirs(lookup))
		})
	}
}
