package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// mount gives a role other tasks as the kubelet does for a ConfigMap: the files are in a new directory, and one link to
// it is replaced.
func (s *stage) mount(role, version, tasks string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "roles", role)
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	s.write("roles/"+role+"/.."+version+"/tasks/main.yml", tasks)
	for _, link := range [][2]string{{".." + version, "..data_tmp"}, {"..data/tasks", "tasks"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil && !os.IsExist(err) {
			s.t.Fatal(err)
		}
	}
	must.Do(s.t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old != "" {
		must.Do(s.t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func sayTasks(word string) string {
	return fmt.Sprintf("- name: Say %s\n  ansible.builtin.shell:\n    cmd: echo \"%s {{ word }}\" > \"$SAID\"\n", word, word)
}

// The running operator uses changed roles and watches, all of them or none, and interrupts no run.
func TestWatchContent_ChangesAreUsedWhenTheyCanBeRead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	said, beats := filepath.Join(t.TempDir(), "said"), filepath.Join(t.TempDir(), "beats")
	s.env = append(s.env, "SAID="+said, "BEATS="+beats)
	says, beating, later := s.kind(), s.kind(), s.kind()
	s.mount("say", "v1", sayTasks("one"))
	s.role("beat", beatTasks)
	s.watch(says, "role: say")
	s.watch(beating, "role: beat", "vars: {color: blue}")
	before := must.Get(os.ReadFile(s.dir + "/watches.yaml"))(t)
	o := s.start("--watch-content")
	o.expectAlive()
	expect := func(want string) {
		t.Helper()
		testenv.Eventually(t, want, func(context.Context) error {
			data, err := os.ReadFile(said)
			if err == nil && strings.TrimSpace(string(data)) != want {
				err = fmt.Errorf("it says %q", data)
			}
			return err
		})
	}
	says.create("it", map[string]any{"word": "a"})
	expect("one a")
	s.mount("say", "v2", sayTasks("two"))
	expect("two a")
	if cause := says.awaitReady("it").lastRun().Cause; cause != "content" {
		t.Errorf("cause of the run: %s", cause)
	}

	tasks := filepath.Join(s.dir, "roles/say/tasks/main.yml")
	s.mount("say", "v3", sayTasks("three")+"  broken: [\n")
	o.awaitOutput("Changed content is broken")
	if want := tasks + ":"; !strings.Contains(o.output(), want) {
		t.Errorf("the log does not name %s", want)
	}
	if n, err := o.metric(t.Context(), "rolewright_content_broken"); err != nil || n != 1 {
		t.Errorf("rolewright_content_broken is %v, %v", n, err)
	}
	says.patch("it", `{"spec":{"word":"b"}}`)
	expect("two b")
	s.mount("say", "v4", "- name: Fail\n  ansible.builtin.fail:\n    msg: in {{ role_path }}\n")
	failed := says.await("it", "failed", func(o object) bool { return o.settled() && o.lastRun().Result == "Failed" }).lastRun()
	if failed.FailedTask == nil || failed.FailedTask.Path != tasks+":1" || !strings.Contains(failed.Message, "in "+s.dir+"/roles/say") {
		t.Errorf("failed task: %+v: %s", failed.FailedTask, failed.Message)
	}
	s.mount("say", "v5", sayTasks("five"))
	expect("five b")

	// The run in progress continues to its end, while other kinds are served. Then the object runs for its changed watch.
	beating.create("long", map[string]any{"beats": 6000})
	run := beating.await("long", "in progress", func(o object) bool { return o.status.Ansible.ActiveRun != nil }).status.Ansible.ActiveRun.ID
	s.write("watches.yaml", strings.Replace(string(before), "blue", "red", 1))
	s.watch(later, "role: say")
	later.create("new", map[string]any{"word": "c"})
	expect("five c")
	if active := beating.get("long").status.Ansible.ActiveRun; active == nil || active.ID != run {
		t.Errorf("run %s is not in progress any more: %+v", run, active)
	}
	o.expectReady()
	must.Do(t, os.WriteFile(beats+".end", nil, 0o600))
	beating.await("long", "run to its end", func(o object) bool { return o.lastRun().ID == run && o.lastRun().Result == "Succeeded" })
	beating.await("long", "run again", func(o object) bool { return o.lastRun().ID != run && o.lastRun().Cause == "content" && o.ready() })

	s.write("watches.yaml", string(before)+"- group: [\n")
	o.awaitOutput("watches.yaml:")
	says.patch("it", `{"spec":{"word":"d"}}`)
	expect("five d")
	s.write("watches.yaml", string(before))
	o.awaitOutput("Stopped the former watch of a kind")
	testenv.Eventually(t, "the metric of a kind that is not watched any more to go", func(ctx context.Context) error {
		n, err := o.metric(ctx, "rolewright_kind_ready", `group="`+later.gvk.Group+`"`)
		if err == nil && n != 0 {
			err = fmt.Errorf("it is %v", n)
		}
		return err
	})
}

// expectReady checks that the Pod would be ready.
func (o *operator) expectReady() {
	o.t.Helper()
	if status, body, err := fetch(o.t.Context(), o.health+"/readyz?verbose"); err != nil || status != 200 {
		o.t.Errorf("readyz answers %d, %v: %s", status, err, body)
	}
}
