package controller

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// The lines around a task come only from roles and playbooks, masked, and from no other file that a run names.
func TestSourceLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, content string) {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600))
	}
	write("roles/web/tasks/main.yml", "1\n2 hunter2-hunter2\n3\n4\x1b[2J\n5\n6\n")
	write("play.yml", "only\n")
	write("inventory/vars.yml", "password\n")
	write("secret.txt", "password\n")
	write("other/secret.yml", "password\n")
	must.Do(t, os.Symlink(filepath.Join(dir, "other/secret.yml"), filepath.Join(dir, "roles/web/tasks/link.yml")))
	in := func(path string) string { return filepath.Join(dir, path) }
	s := &scope{mask: redact.New(), content: &contentVersion{inputs: &contents{roots: fingerprint.Roots{
		Trees: []string{in("roles/web"), in("roles"), in("inventory")}, Playbooks: []string{in("plays/play.yml")},
	}}}}
	write("plays/play.yml", "only\n")
	for _, path := range []string{"plays/group_vars/all.yml", "plays/hosts/all.yml", "roles/web/vars/main.yml", "roles/web/defaults/main.yml"} {
		write(path, "password\n")
	}
	s.mask.Add(t.Context(), "hunter2-hunter2")
	r := &reconciler{opts: &Options{Inventory: in("inventory")}}
	masked := s.mask.Mask("2 hunter2-hunter2")
	for place, want := range map[string]*history.Source{
		in("roles/web/tasks/main.yml:3"):       {First: 1, Line: 3, Lines: []string{"1", masked, "3", "4", "5"}},
		in("roles/web/tasks/main.yml:1"):       {First: 1, Line: 1, Lines: []string{"1", masked, "3"}},
		in("plays/play.yml:1"):                 {First: 1, Line: 1, Lines: []string{"only"}},
		in("roles/web/tasks/main.yml:7"):       nil,
		in("roles/web/tasks/main.yml:0"):       nil,
		in("roles/web/tasks/main.yml"):         nil,
		in("roles/web/tasks/link.yml:1"):       nil,
		in("inventory/vars.yml:1"):             nil,
		in("plays/group_vars/all.yml:1"):       nil,
		in("roles/web/vars/main.yml:1"):        nil,
		in("roles/web/defaults/main.yml:1"):    nil,
		in("secret.txt:1"):                     nil,
		in("other/secret.yml:1"):               nil,
		in("roles") + "/../other/secret.yml:1": nil,
		in("roles/web:1"):                      nil,
		"":                                     nil,
	} {
		must.Be(t, place, want, r.sourceLines(s, place))
	}
	r.opts.Inventory = in("plays/hosts") // beside the playbook
	must.Be(t, "inventory beside a playbook", (*history.Source)(nil), r.sourceLines(s, in("plays/hosts/all.yml:1")))
}

// The lines of a task with no_log stay as hidden as its output.
func TestSourceLines_NotOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	for res, want := range map[string]bool{`{"censored":"c","failed":true}`: true, `{"msg":"m","failed":true}`: false} {
		var sum jobevent.Summary
		sum.Observe(jobevent.Event{Kind: jobevent.PlaybookStart, Data: jobevent.Data{PlaybookUUID: "p"}})
		sum.Observe(jobevent.Event{Kind: jobevent.RunnerFailed, Data: jobevent.Data{PlaybookUUID: "p", Host: "h", Res: []byte(res)}})
		must.Be(t, res, want, hidesFailure(sum))
	}
}
