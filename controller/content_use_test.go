package controller

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// Roles that playbooks name are searched for in the copy, in the places where Ansible would search outside of it.
func TestRolesPath_IsThatOfTheCopy(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	place := contentcopy.Place{Dirs: []string{dir}}
	state := must.Get(place.State(t.Context()))(t)
	c := must.Get(contentcopy.New(t.Context(), place, state, t.TempDir()))(t)
	t.Cleanup(c.Close)
	config := filepath.Join(elsewhere, "ansible.cfg")
	must.Do(t, os.WriteFile(config, []byte("[other]\nroles_path = /x\n[defaults]\nroles_path = ours:"+dir+"/roles\n"), 0o600))
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"none":                 {map[string]string{"HOME": elsewhere + "/none"}, ""},
		"of the variable":      {map[string]string{"ANSIBLE_ROLES_PATH": "/x:" + dir + "/roles", "ANSIBLE_CONFIG": config}, "/x:" + c.Path(dir+"/roles")},
		"elsewhere":            {map[string]string{"ANSIBLE_ROLES_PATH": "/x"}, ""},
		"of the configuration": {map[string]string{"ANSIBLE_CONFIG": config}, elsewhere + "/ours:" + c.Path(dir+"/roles")},
		"below home":           {map[string]string{"ANSIBLE_ROLES_PATH": "~/roles", "HOME": dir}, c.Path(dir + "/roles")},
	} {
		if got := rolesPath(c, func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok }); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A run from a copy has the same inputs as a run from the original. Otherwise each switch between the two would run every
// object.
func TestContents_OfACopyAreThoseOfWhatLiesThere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, file := range []string{"roles/one/tasks/main.yml", "roles/other/files/run.sh", "site.yml", "vars/all.yml", "watches.yaml"} {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte("# "+file+"\n"), 0o700))
	}
	all := []watches.Watch{
		{Content: watches.Content{Role: filepath.Join(dir, "roles/one")}},
		{Content: watches.Content{Playbook: filepath.Join(dir, "site.yml")}},
	}
	c, _, err := contentcopy.Take(t.Context(), t.TempDir(), "watches.yaml", all)
	must.Do(t, err)
	t.Cleanup(c.Close)
	for _, w := range all {
		opts := &Options{RolesPath: []string{"roles"}}
		there, copied := contentsOf(w, opts, nil), newContents(w, opts, c, nil)
		want := must.Get(there.parts(t.Context(), true))(t)
		must.Be(t, "the inputs of a run of the copy", want, must.Get(copied.parts(t.Context(), true))(t))
	}
}

// After a kind was stopped, its queue still hands out objects, when the copy of the content may already be gone.
func TestTake_EndsWithTheKind(t *testing.T) {
	place := contentcopy.Place{Dirs: []string{t.TempDir()}}
	state := must.Get(place.State(t.Context()))(t)
	c := must.Get(contentcopy.New(t.Context(), place, state, t.TempDir()))(t)
	k := &kind{content: &contentVersion{copy: c}}
	k.stopped, k.stop = context.WithCancelCause(t.Context())
	k.stop(errReplaced)
	if k.acquireContent(t.Context()) == nil {
		t.Fatal("no content, while the copy is there")
	}
	c.Close()
	c.Release()
	if k.acquireContent(t.Context()) != nil {
		t.Error("the kind was stopped and its copy is gone: there is content")
	}
	k.stopped = context.Background()
	ended, end := context.WithCancel(t.Context())
	end()
	if k.acquireContent(ended) != nil {
		t.Error("the operator stops and the copy is gone: there is content")
	}
}

// A changed watch waits for a run in progress of the old watch. The log says so, and rolewright_kind_ready is 0.
func TestAwaitBefore_SaysWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, before, log := prometheus.NewRegistry(), make(chan struct{}), &strings.Builder{}
		k := &kind{
			watch: watches.Watch{GVK: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Busy"}}, after: []<-chan struct{}{before},
			opts: &Options{Metrics: must.Get(metrics.New(reg))(t)},
			log:  funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}),
		}
		done := make(chan struct{})
		go func() { k.awaitBefore(); close(done) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "Kind=Busy") || !strings.Contains(log.String(), "runs in progress have to end") {
			t.Errorf("log: %s", log)
		}
		want := "# HELP rolewright_kind_ready 1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.\n# TYPE rolewright_kind_ready gauge\n" +
			"rolewright_kind_ready{group=\"g\",kind=\"Busy\",version=\"v1\"} 0\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "rolewright_kind_ready"); err != nil {
			t.Error(err)
		}
		close(before)
		<-done
	})
}

// Changed content is named after what runs, such as roles or a chart.
func TestContents_AreCalledByWhatRuns(t *testing.T) {
	t.Parallel()
	command := watches.Command{Path: "/bin/true"}
	chart := command
	chart.Chart = &watches.Chart{Dir: t.TempDir()}
	for want, content := range map[string]watches.Content{
		"roles and playbooks, role or playbook": {Playbook: "/none/site.yml"}, "files of the command, command": {Command: &command}, "chart, chart": {Command: &chart},
	} {
		var names []string
		for _, p := range must.Get(contentsOf(watches.Watch{Content: content}, &Options{}, vault.New("", os.LookupEnv)).parts(t.Context(), true))(t) {
			if p.Group == fingerprint.OfContent && p.Name != "collections" || p.Group == fingerprint.OfSettings && len(names) == 1 {
				names = append(names, p.Name)
			}
		}
		must.Be(t, "names", want, strings.Join(names, ", "))
	}
}
