package rolevars

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

func TestOf_NamesWhatTheFilesSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{
		"roles/web/tasks/main.yml": `
- command: "true"
  register: result
- ansible.builtin.set_fact: {url: x, cacheable: true, "{{ dynamic }}": 1}
- block:
  - k8s: {definition: {spec: {vars: {none: 1}, register: none}}}
    vars: {local: 1}
  rescue:
  - import_role: {name: base}
`,
		"roles/web/tasks/deep/more.yaml": "- debug: {}\n  register: deep\n",
		"roles/web/handlers/main.yml":    "- debug: {}\n  register: handled\n",
		"roles/web/vars/main.yml":        "port: 80\npassword: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  33\n",
		"roles/web/defaults/main.yml":    "size: 1\n",
		"roles/web/tasks/broken.yml":     "- {",
		"roles/web/tasks/words.yml":      "- set_fact: by_words=1 cacheable=yes\n- action: ansible.builtin.set_fact by_action=1\n- action: command a=b\n",
		"roles/web/meta/main.yml":        "dependencies: [{role: needed}]\n",
		"roles/needed/tasks/main.yml":    "- debug: {}\n  register: of_needed\n",
		"roles/base/vars/main.yaml":      "base_path: /\n",
		"elsewhere/far/vars/main.yml":    "far: 1\n",
		"play.yml": `
- hosts: localhost
  vars: {of_play: 1}
  roles: [far, {role: base, vars: {of_role: 1}}]
  tasks:
  - include_tasks: more.yml
  - ansible.builtin.include_tasks: {file: "{{ dynamic }}.yml"}
`,
		"more.yml": "- debug: {}\n  register: included\n- include_tasks: more.yml\n",
	})
	far := []string{filepath.Join(dir, "elsewhere")}
	for _, tt := range []struct {
		playbook, role string
		want           []string
	}{
		{role: "roles/web", want: []string{"base_path", "by_action", "by_words", "deep", "handled", "local", "of_needed", "password", "port", "result", "url"}},
		{playbook: "play.yml", want: []string{"base_path", "far", "included", "of_play", "of_role"}},
		{role: "roles/none"},
		{playbook: "none.yml"},
		{},
	} {
		in := func(name string) string {
			if name == "" {
				return ""
			}
			return filepath.Join(dir, name)
		}
		if diff := cmp.Diff(tt.want, Of(in(tt.playbook), in(tt.role), far)); diff != "" {
			t.Errorf("%s%s (-want +got):\n%s", tt.playbook, tt.role, diff)
		}
	}
}
