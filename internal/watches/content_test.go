package watches

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// TestLoad_FindsContent checks that Load searches the same places in the same order as ansible-operator.
func TestLoad_FindsContent(t *testing.T) {
	tests := map[string]struct {
		// exists are files, and directories with a slash at the end.
		exists []string
		env    map[string]string
		// value is the value of role, or of playbook if it ends in .yml.
		value string
		// want is the resolved path, in which DIR is the working directory; empty if nothing is found.
		want string
	}{
		"role in the working directory":         {[]string{"roles/x/"}, nil, "x", "DIR/roles/x"},
		"role as a path":                        {[]string{"some/roles/x/"}, nil, "some/roles/x", "some/roles/x"},
		"roles directory before the path":       {[]string{"roles/x/", "x/"}, nil, "x", "DIR/roles/x"},
		"absolute role":                         {[]string{"x/", "roles/x/"}, nil, "DIR/x", "DIR/x"},
		"absolute role is not searched":         {[]string{"roles/x/"}, nil, "/x", ""},
		"roles path":                            {[]string{"p/x/", "roles/x/"}, map[string]string{"ANSIBLE_ROLES_PATH": "DIR/q:DIR/p"}, "x", "DIR/p/x"},
		"roles below the roles path":            {[]string{"p/roles/x/", "roles/x/"}, map[string]string{"ANSIBLE_ROLES_PATH": "DIR/p"}, "x", "DIR/p/roles/x"},
		"roles path entry by entry":             {[]string{"p/roles/x/", "q/x/"}, map[string]string{"ANSIBLE_ROLES_PATH": "DIR/p:DIR/q"}, "x", "DIR/p/roles/x"},
		"relative roles path stays so":          {[]string{"p/x/"}, map[string]string{"ANSIBLE_ROLES_PATH": "p"}, "x", "p/x"},
		"empty roles path":                      {[]string{"roles/x/", "x/"}, map[string]string{"ANSIBLE_ROLES_PATH": ""}, "x", "DIR/roles/x"},
		"collections path":                      {[]string{"c/ansible_collections/a/b/roles/x/", "roles/a.b.x/"}, map[string]string{"ANSIBLE_COLLECTIONS_PATH": "/gone:DIR/c"}, "a.b.x", "DIR/c/ansible_collections/a/b/roles/x"},
		"collections at home":                   {[]string{".ansible/collections/ansible_collections/a/b/roles/x/"}, map[string]string{"HOME": "DIR"}, "a.b.x", "DIR/.ansible/collections/ansible_collections/a/b/roles/x"},
		"empty collections path is the home":    {[]string{".ansible/collections/ansible_collections/a/b/roles/x/"}, map[string]string{"HOME": "DIR", "ANSIBLE_COLLECTIONS_PATH": ""}, "a.b.x", "DIR/.ansible/collections/ansible_collections/a/b/roles/x"},
		"collections path replaces the home":    {[]string{".ansible/collections/ansible_collections/a/b/roles/x/"}, map[string]string{"HOME": "DIR", "ANSIBLE_COLLECTIONS_PATH": "/gone"}, "a.b.x", ""},
		"role with two dots":                    {[]string{"roles/a.b.x/"}, nil, "a.b.x", "DIR/roles/a.b.x"},
		"role with two dots in the path":        {[]string{"p/a.b.x/"}, map[string]string{"ANSIBLE_ROLES_PATH": "DIR/p"}, "a.b.x", "DIR/p/a.b.x"},
		"role with one dot is not a collection": {[]string{"c/ansible_collections/a/b/roles/x/", "roles/a.b/"}, map[string]string{"ANSIBLE_COLLECTIONS_PATH": "DIR/c"}, "a.b", "DIR/roles/a.b"},
		"missing role":                          {nil, nil, "x", ""},
		"relative playbook":                     {[]string{"playbooks/x.yml"}, nil, "playbooks/x.yml", "DIR/playbooks/x.yml"},
		"absolute playbook":                     {[]string{"playbooks/x.yml"}, nil, "DIR/playbooks/x.yml", "DIR/playbooks/x.yml"},
		"playbook is not searched":              {[]string{"p/x.yml"}, map[string]string{"ANSIBLE_PLAYBOOK_DIR": "DIR/p"}, "x.yml", ""},
		"collections path overridden by home":   {[]string{"c/ansible_collections/a/b/roles/x/"}, map[string]string{"HOME": "DIR/c"}, "a.b.x", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.exists {
				create(t, dir, f)
			}
			env := map[string]string{}
			for k, v := range tt.env {
				env[k] = strings.ReplaceAll(v, "DIR", dir)
			}
			key := "role"
			if strings.HasSuffix(tt.value, ".yml") {
				key = "playbook"
			}
			value := strings.ReplaceAll(tt.value, "DIR", dir)
			// The finalizer finds its content in the same places.
			got := loadText(t, dir, "- version: v1\n  kind: A\n  "+key+": "+value+"\n  finalizer: {name: example.com/x, "+key+": "+value+"}\n",
				Options{LookupEnv: lookup(env)})
			if tt.want == "" {
				if len(got.problems) != 2 || !strings.Contains(got.problems[0], key+": ") || !strings.Contains(got.problems[0], " was not found") {
					t.Errorf("want not found twice, got %q", got.problems)
				}
				return
			}
			if got.err != nil || len(got.watches) != 1 {
				t.Fatalf("problems %q", got.problems)
			}
			content := Content{Role: strings.ReplaceAll(tt.want, "DIR", dir)}
			if key == "playbook" {
				content = Content{Playbook: content.Role}
			}
			want := []Content{content, content}
			if diff := cmp.Diff(want, []Content{got.watches[0].Content, got.watches[0].Finalizer.Content}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLoad_LinkedRoleIsARole: in images, roles may be behind links.
func TestLoad_LinkedRoleIsARole(t *testing.T) {
	dir := t.TempDir()
	create(t, dir, "elsewhere/x/")
	create(t, dir, "roles/")
	must.Do(t, os.Symlink("../elsewhere/x", filepath.Join(dir, "roles/x")))
	got := loadText(t, dir, "- version: v1\n  kind: A\n  role: x\n", Options{})
	if got.err != nil || got.watches[0].Content.Role != filepath.Join(dir, "roles/x") {
		t.Errorf("watches %v, problems %q", got.watches, got.problems)
	}
}

// TestLoad_FinalizerVarsAloneRunTheMainContent, and only then.
func TestLoad_FinalizerVarsAloneRunTheMainContent(t *testing.T) {
	got := loadText(t, project(t), watch("  finalizer: {name: example.com/x, vars: {state: absent}}"), Options{})
	if got.err != nil {
		t.Fatal(got.err)
	}
	w := got.watches[0]
	want := &Finalizer{
		Name: "example.com/x", Content: w.Content, Vars: map[string]any{"state": "absent"},
		Timeout: 2 * time.Hour, IdleTimeout: 30 * time.Minute, OnFailure: OnFailureRetry,
	}
	if diff := cmp.Diff(want, w.Finalizer); diff != "" || w.Content.IsZero() {
		t.Error(diff)
	}
}
