package fingerprint

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

func custom(edit ...func(map[string]any)) map[string]any {
	obj := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "one", "uid": "u", "generation": int64(1), "resourceVersion": "5",
			"labels": map[string]any{"a": "1"}, "annotations": map[string]any{"a": "1"}},
		"spec":   map[string]any{"size": int64(1), "ratio": 0.5},
		"status": map[string]any{"x": "y"},
	}
	for _, e := range edit {
		e(obj)
	}
	return obj
}

func meta(key string, value any) func(map[string]any) {
	return func(obj map[string]any) { obj["metadata"].(map[string]any)[key] = value }
}

func plain(edit ...func(map[string]any)) map[string]any {
	return custom(append([]func(map[string]any){func(obj map[string]any) {
		delete(obj["metadata"].(map[string]any), "generation")
	}}, edit...)...)
}

func TestOf_ChangesExactlyWithTheInputs(t *testing.T) {
	type inputs struct {
		content string
		counts  Counts
	}
	in, asking := inputs{content: "c"}, Counts{Annotations: true, Requests: []string{"stop"}}
	of := func(obj map[string]any, in inputs) (string, error) {
		object, err := Object(obj, in.counts)
		return Of([]Part{{OfObject, "", object}, {OfContent, "roles", in.content}}), err
	}
	tests := []struct {
		name       string
		was, is    map[string]any
		wasIn, iIn inputs
		same       bool
	}{
		{"nothing", custom(), custom(), in, in, true},
		{"spec", custom(), custom(func(o map[string]any) { o["spec"] = map[string]any{"size": int64(2)} }), in, in, false},
		{"another top-level field", custom(), custom(func(o map[string]any) { o["data"] = "x" }), in, in, false},
		{"status", custom(), custom(func(o map[string]any) { o["status"] = nil }), in, in, true},
		{"generation alone", custom(), custom(meta("generation", int64(9))), in, in, true},
		{"bookkeeping", custom(), custom(meta("resourceVersion", "6"), meta("managedFields", []any{"m"}), meta("finalizers", []any{"f"})), in, in, true},
		{"labels", custom(), custom(meta("labels", nil)), in, in, true},
		{"annotations", custom(), custom(meta("annotations", nil)), in, in, true},
		{"annotations that count", custom(), custom(meta("annotations", nil)),
			inputs{counts: Counts{Annotations: true}}, inputs{counts: Counts{Annotations: true}}, false},
		{"annotations that are requests", custom(meta("annotations", nil)), custom(meta("annotations", map[string]any{"stop": "x"})),
			inputs{counts: asking}, inputs{counts: asking}, true},
		{"annotations that are requests, beside others", plain(), plain(meta("annotations", map[string]any{"a": "1", "stop": "x"})),
			inputs{counts: asking}, inputs{counts: asking}, true},
		{"another annotation beside a request", plain(), plain(meta("annotations", map[string]any{"a": "2", "stop": "x"})),
			inputs{counts: asking}, inputs{counts: asking}, false},
		{"status that counts only without a generation", custom(), custom(func(o map[string]any) { o["status"] = nil }),
			inputs{counts: Counts{Status: true}}, inputs{counts: Counts{Status: true}}, true},
		{"status of an object without generation", plain(), plain(func(o map[string]any) { o["status"] = nil }), in, in, true},
		{"status of an object without generation, that counts", plain(), plain(func(o map[string]any) { o["status"] = nil }),
			inputs{counts: Counts{Status: true}}, inputs{counts: Counts{Status: true}}, false},
		{"uid", custom(), custom(meta("uid", "v")), in, in, false},
		{"content", custom(), custom(), in, inputs{content: "d"}, false},
		{"labels of an object without generation", plain(), plain(meta("labels", nil)), in, in, false},
		{"annotations of an object without generation", plain(), plain(meta("annotations", nil)), in, in, false},
		{"bookkeeping of an object without generation", plain(), plain(meta("resourceVersion", "6"), meta("managedFields", nil)), in, in, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			was := must.Get(of(tt.was, tt.wasIn))(t)
			is := must.Get(of(tt.is, tt.iIn))(t)
			if (was == is) != tt.same {
				t.Errorf("same = %v, want %v", was == is, tt.same)
			}
		})
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestDigest_FollowsWhatARunReads(t *testing.T) {
	build := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{
			"play/site.yml": "- hosts: all", "play/vars.yml": "a: 1", "play/templates/x.j2": "x", "play/.cache/blob": "1", "play/tmp/run.log": "1",
			"play/collections/ansible_collections/ns/beside/plugins/modules/m.py": "1",
			"roles/r/tasks/main.yml": "- debug:", "roles/r/tasks/__pycache__/m.pyc": "1", "roles/r/.git/HEAD": "1",
			"coll/ansible_collections/ns/released/MANIFEST.json": "{}", "coll/ansible_collections/ns/released/plugins/modules/m.py": "1",
			"coll/ansible_collections/ns/source/plugins/modules/m.py": "1",
			"etc/app/a.yml": "1", "etc/app/conf.d/b.yml": "1", "etc/other": "1",
		} {
			write(t, dir, name, text)
		}
		return dir
	}
	tests := []struct {
		file    string
		counts  bool
		content string
	}{
		{"play/site.yml", true, "- hosts: none"},
		{"play/vars.yml", true, "a: 2"},
		{"play/new.yml", true, "b: 1"},
		{"play/templates/x.j2", true, "y"},
		{"play/collections/ansible_collections/ns/beside/plugins/modules/m.py", true, "2"},
		{"play/.cache/blob", false, "2"},
		{"play/tmp/run.log", false, "2"},
		{"roles/r/tasks/main.yml", true, "- fail:"},
		{"roles/r/tasks/__pycache__/m.pyc", false, "2"},
		{"roles/r/.git/HEAD", false, "2"},
		{"coll/ansible_collections/ns/released/MANIFEST.json", true, "{ }"},
		{"coll/ansible_collections/ns/released/plugins/modules/m.py", false, "2"},
		{"coll/ansible_collections/ns/source/plugins/modules/m.py", true, "2"},
		{"etc/app/a.yml", true, "2"},
		{"etc/app/new.yml", true, "2"},
		{"etc/app/conf.d/b.yml", true, "2"},
		{"etc/other", false, "2"},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			dir := build(t)
			roots := Roots{
				Trees: []string{filepath.Join(dir, "roles")}, Playbooks: []string{filepath.Join(dir, "play/site.yml")},
				Collections: []string{filepath.Join(dir, "coll")}, Patterns: []string{filepath.Join(dir, "etc/app/*")},
			}
			var c Contents
			was := must.Get(c.Digest(t.Context(), roots))(t)
			if again, _ := c.Digest(t.Context(), roots); again != was {
				t.Fatal("the digest of unchanged files changed")
			}
			write(t, dir, tt.file, tt.content)
			is := must.Get(c.Digest(t.Context(), roots))(t)
			if (was != is) != tt.counts {
				t.Errorf("changed = %v, want %v", was != is, tt.counts)
			}
		})
	}
}

// The example's playbooks/roles is a link to roles.
func TestDigest_FollowsLinksToDirectories(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "play/site.yml", "- hosts: all")
	write(t, dir, "roles/r/tasks/main.yml", "- debug:")
	for link, target := range map[string]string{"play/roles": "../roles", "roles/r/loop": "../../roles"} {
		must.Do(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	roots := Roots{Playbooks: []string{filepath.Join(dir, "play/site.yml")}}
	var c Contents
	was := must.Get(c.Digest(t.Context(), roots))(t)
	write(t, dir, "roles/r/tasks/main.yml", "- fail:")
	if is, err := c.Digest(t.Context(), roots); err != nil || is == was {
		t.Errorf("a change behind a link was not seen (%v)", err)
	}
}

// Kubernetes mounts a ConfigMap as links through a directory whose name is different in every Pod.
func TestDigest_OfAMountedConfigMapIsThatOfItsContent(t *testing.T) {
	mount := func(stamp string) string {
		dir := t.TempDir()
		write(t, dir, stamp+"/main.yml", "- debug:")
		for link, target := range map[string]string{"..data": stamp, "main.yml": "..data/main.yml"} {
			must.Do(t, os.Symlink(target, filepath.Join(dir, link)))
		}
		return dir
	}
	var sums []string
	link := filepath.Join(t.TempDir(), "role")
	for _, stamp := range []string{"..2026_01_01", "..2026_02_02"} {
		_ = os.Remove(link)
		must.Do(t, os.Symlink(mount(stamp), link))
		var c Contents
		sum := must.Get(c.Digest(t.Context(), Roots{Trees: []string{link}}))(t)
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Error("the same content in two Pods has two digests")
	}
}

func TestDigest_MissingAndOddFilesAreStates(t *testing.T) {
	dir := t.TempDir()
	roots := Roots{Trees: []string{filepath.Join(dir, "role")}, Playbooks: []string{filepath.Join(dir, "none/site.yml")}}
	var c Contents
	missing := must.Get(c.Digest(t.Context(), roots))(t)
	write(t, dir, "role/tasks/main.yml", "x")
	must.Do(t, os.Symlink("/nowhere", filepath.Join(dir, "role/dangling")))
	present, err := c.Digest(t.Context(), roots)
	if err != nil || present == missing {
		t.Errorf("digest %q (%v), want another than %q", present, err, missing)
	}
}

// Sixteen bits of a password's digest are enough to see that it has changed, and too few to test guesses.
func TestDigest_OfAPasswordTellsLittle(t *testing.T) {
	dir := t.TempDir()
	roots := Roots{Passwords: []string{filepath.Join(dir, "password")}}
	sums := map[string]bool{}
	for i := range 1000 {
		write(t, dir, "password", strconv.Itoa(i))
		var c Contents
		sums[must.Get(c.Digest(t.Context(), roots))(t)] = true
	}
	if n := len(sums); n < 2 || n == 1000 {
		t.Errorf("1000 passwords have %d digests", n)
	}
}

func TestDigest_IsKeptForAWhile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "main.yml", "x")
	roots := Roots{Trees: []string{dir}}
	c := Contents{MaxAge: time.Hour}
	was := must.Get(c.Digest(t.Context(), roots))(t)
	write(t, dir, "main.yml", "y")
	if is, _ := c.Digest(t.Context(), roots); is != was {
		t.Error("the files were read again at once")
	}
}
