package content

import (
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestFiles_AreThoseOfLiteralAbsolutePaths(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{
		"site.yml": `- hosts: localhost
  vars_files: [/etc/app/a.yml, [/etc/app/b.yml, "/etc/{{ x }}.yml"], vars/beside.yml]
  vars: {motd: "{{ lookup('file', '/etc/app/motd') }}"}
  roles: [one]
  tasks:
    - block:
        - {include_vars: /etc/app/../app/c.yml}
      rescue:
        - ansible.builtin.include_vars: {dir: /etc/app/vars.d}
`,
		"roles/one/tasks/main.yml": `- {include_vars: file=/etc/app/d.yml, when: a}
- include_vars: {file: "{{ b }}/e.yml"}
- include_vars: {file: beside.yml}
- copy: {dest: /tmp/x, content: "{{ query('ansible.builtin.template', \"/etc/app/f.j2\") }}{{ lookup('file','/etc/app/g') }}"}
- copy: {dest: /tmp/x, content: "{{ lookup('file', path) }}{{ lookup('env', '/etc/none') }}{{ lookup('file', '/etc/' ~ x) }}"}
`,
		"roles/one/tasks/later.yml":   "- debug: {msg: \"{{ lookup('template', '/etc/app/h.j2') }}\"}\n",
		"roles/one/defaults/main.yml": "i: \"{{ lookup('file', '/etc/app/i') }}\"\n",
		"roles/one/vars/main.yml":     "not: [yaml\n",
	})
	want := []string{
		"/etc/app/a.yml", "/etc/app/b.yml", "/etc/app/c.yml", "/etc/app/d.yml", "/etc/app/f.j2", "/etc/app/g", "/etc/app/h.j2", "/etc/app/i",
		"/etc/app/motd", "/etc/app/vars.d",
	}
	must.Be(t, "what was got", want, Files(Content{Playbook: filepath.Join(dir, "site.yml")}, Options{AllTasks: true}))
	if got := Files(Content{Role: filepath.Join(dir, "none")}, Options{}); len(got) > 0 {
		t.Errorf("of no role: %q", got)
	}
}
