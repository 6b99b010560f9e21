package syntaxcheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// TestParse reads captured output of two lines of ansible-core.
func TestParse(t *testing.T) {
	tests := []struct {
		name   string
		output string
		want   Error
	}{
		{"YAML, 2.14", `ERROR! We were unable to read either as JSON nor YAML, these are the errors we got from each:
JSON: Expecting value: line 1 column 1 (char 0)

Syntax Error while loading YAML.
  did not find expected '-' indicator

The error appears to be in '/p/it's.yml': line 5, column 6, but may
be elsewhere in the file depending on the exact syntax problem.

The offending line appears to be:

      debug: msg="{{ a }}
     foo: bar
     ^ here
`, Error{"/p/it's.yml", 5, 6, "Syntax Error while loading YAML. did not find expected '-' indicator"}},
		{"YAML, 2.19", `[ERROR]: YAML parsing failed: While parsing a block collection did not find expected '-' indicator.
Origin: /p/a:b.yml:5:6

3     - name: x
4       debug: msg="{{ a }}
5      foo: bar
       ^ column 6

`, Error{"/p/a:b.yml", 5, 6, "YAML parsing failed: While parsing a block collection did not find expected '-' indicator."}},
		{"task, 2.14", `[WARNING]: You are running the development version of Ansible.
ERROR! conflicting action statements: debug, shell

The error appears to be in '/p/roles/r/tasks/main.yml': line 1, column 3, but may
be elsewhere in the file depending on the exact syntax problem.
`, Error{"/p/roles/r/tasks/main.yml", 1, 3, "conflicting action statements: debug, shell"}},
		{"module, 2.19", `[WARNING]: Error loading plugin 'a.b.c': No module named 'ansible_collections.a'
[ERROR]: couldn't resolve module/action 'a.b.c'. This often indicates a misspelling, missing collection, or incorrect module path.
Origin: /p/nomod.yml:3:5

1 - hosts: localhost
2   tasks:
3   - name: y
      ^ column 5
`, Error{"/p/nomod.yml", 3, 5, "couldn't resolve module/action 'a.b.c'. This often indicates a misspelling, missing collection, or incorrect module path."}},
		{"no position, 2.14", `ERROR! Unable to retrieve file contents
Could not find or access '/p/missing.yml' on the Ansible Controller.
If you are using a module and expect the file to exist on the remote, see the remote_src option
`, Error{"", 0, 0, "Unable to retrieve file contents Could not find or access '/p/missing.yml' on the Ansible Controller. If you are using a module and expect the file to exist on the remote, see the remote_src option"}},
		{"file only, 2.19", `[ERROR]: YAML parsing failed: unacceptable character #x0000: control characters are not allowed in "<unicode string>", position 3
Origin: /p/bin.yml

`, Error{"/p/bin.yml", 0, 0, `YAML parsing failed: unacceptable character #x0000: control characters are not allowed in "<unicode string>", position 3`}},
		{"chain of causes, 2.19", `[ERROR]: Invalid vars_files file '/p/vf.yml': Attempting to decrypt but no vault secrets found.

Invalid vars_files file '/p/vf.yml'.

<<< caused by >>>

Attempting to decrypt but no vault secrets found.
Origin: /p/vf.yml

`, Error{"/p/vf.yml", 0, 0, "Invalid vars_files file '/p/vf.yml': Attempting to decrypt but no vault secrets found. Invalid vars_files file '/p/vf.yml'."}},
		{"empty playbook, 2.14", "ERROR! Empty playbook, nothing to do: /p/empty.yml\n", Error{"", 0, 0, "Empty playbook, nothing to do: /p/empty.yml"}},
		{"traceback", "Traceback (most recent call last):\n  File \"x\", line 1\nImportError: no module named yaml\n",
			Error{"", 0, 0, `Traceback (most recent call last): File "x", line 1 ImportError: no module named yaml`}},
		{"nothing", "", Error{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(&tt.want, parse(tt.output)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if long := parse("ERROR! " + strings.Repeat("é ", 2000)); len(long.Message) > messageLimit {
		t.Errorf("a message of %d bytes", len(long.Message))
	}
}

// project writes files into a new directory.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, files)
	return dir
}

// TestCheck_AsksAnsible uses the installed ansible-core.
func TestCheck_AsksAnsible(t *testing.T) {
	parts.Ansible(t)
	dir := project(t, map[string]string{
		"good.yml":                          "- hosts: localhost\n  tasks:\n    - ansible.builtin.debug: {msg: hi}\n",
		"bad.yml":                           "- hosts: localhost\n  tasks:\n    - name: two actions\n      debug: {msg: a}\n      shell: b\n",
		"-leading.yml":                      "- hosts: localhost\n  tasks: []\n",
		"roles/good role/tasks/main.yml":    "- ansible.builtin.debug: {msg: hi}\n",
		"roles/bad/tasks/main.yml":          "- ansible.builtin.debug: {msg: hi}\n- name: none\n  no_such.module.at_all: {}\n",
		"roles/dependent/meta/main.yml":     "dependencies: [{role: sibling}]\n",
		"roles/sibling/tasks/main.yml":      "- ansible.builtin.debug: {msg: hi}\n",
		"roles/lonely/meta/main.yml":        "dependencies: [{role: nowhere}]\n",
		"elsewhere/far/tasks/main.yml":      "- ansible.builtin.debug: {msg: hi}\n",
		"roles/far_dependent/meta/main.yml": "dependencies: [{role: far}]\n",
	})
	env := append(os.Environ(), "ANSIBLE_FORCE_COLOR=1", "ANSIBLE_ROLES_PATH="+filepath.Join(dir, "elsewhere"))
	tests := []struct {
		name    string
		content runner.Content
		// file and line are where the mistake is; file is empty if there is none.
		file    string
		line    int
		message string // part of the message, which begins with a capital from 2.22 on
	}{
		{"good playbook", runner.Content{Playbook: dir + "/good.yml"}, "", 0, ""},
		{"good role", runner.Content{Role: dir + "/roles/good role"}, "", 0, ""},
		{"role beside a role", runner.Content{Role: dir + "/roles/dependent"}, "", 0, ""},
		{"role in the roles path", runner.Content{Role: dir + "/roles/far_dependent/"}, "", 0, ""},
		{"bad playbook", runner.Content{Playbook: dir + "/bad.yml"}, "bad.yml", 3, "conflicting action statements: debug, shell"},
		{"bad role", runner.Content{Role: dir + "/roles/bad"}, "roles/bad/tasks/main.yml", 2, "couldn't resolve module/action 'no_such.module.at_all'"},
		{"missing dependency", runner.Content{Role: dir + "/roles/lonely"}, "roles/lonely/meta/main.yml", 1, "he role 'nowhere' was not found"},
		{"missing role", runner.Content{Role: dir + "/roles/gone"}, "roles/gone", 0, "he role 'gone' was not found"},
		{"missing playbook", runner.Content{Playbook: dir + "/gone.yml"}, "gone.yml", 0, "could not be found"},
		{"playbook like an option", runner.Content{Playbook: "-leading.yml"}, "-leading.yml", 0, "could not be found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := Check(t.Context(), tt.content, env)
			if tt.file == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			file := strings.TrimPrefix(got.File, dir+"/")
			if file != tt.file || got.Line != tt.line || !strings.Contains(got.Message, tt.message) || strings.Contains(got.Message, "\x1b") {
				t.Errorf("got %s:%d: %q", file, got.Line, got.Message)
			}
		})
	}
}

func TestCheck_WithoutAnsible(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Check(t.Context(), runner.Content{Playbook: "/x.yml"}, nil); !errors.Is(err, runner.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// TestCheck_EndsWithItsContext: a check that hangs is killed and leaves
// no file behind.
func TestCheck_EndsWithItsContext(t *testing.T) {
	bin, temp := t.TempDir(), t.TempDir()
	started := filepath.Join(bin, "started")
	script := "#!/bin/sh\n: >" + started + "\nsleep 1000\n"
	must.Do(t, os.WriteFile(filepath.Join(bin, "ansible-playbook"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", temp)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for {
			if _, err := os.Stat(started); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel(cause)
	}()
	if err := Check(ctx, runner.Content{Playbook: "/x.yml"}, os.Environ()); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
