package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

const diffed = `                         aaaaaaaa               bbbbbbbb
started                  2026-05-06T18:00:00Z   2026-05-06T19:00:00Z
took                     2s                     in progress
generation               1                      2
trigger                  <none>                 spec.size
result                   Succeeded              <none>
version of ansible       2.19                   2.20
TASKS
r : Loop  main.yml #2    ok                     changed
r : Gone  main.yml       ok                     <none>
r : New  main.yml        <none>                 failed: no room
WRITES
deployments.apps one/x   created                changed: spec.replicas
services one/x           refused with 403       <none>
`

func TestDiffRuns(t *testing.T) {
	t.Parallel()
	task := func(name, path, outcome string) history.Task {
		return history.Task{TaskName: history.TaskName{Name: name, Role: "r", Path: path}, Outcome: outcome}
	}
	start := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	object := history.Object{Group: "g", Version: "v1", Kind: "A", Namespace: "one", Name: "a"}
	a := history.Run{
		Brief:    history.Brief{ID: "aaaaaaaa", Object: object, Generation: 1, Cause: "changed", Started: start, Finished: start.Add(2 * time.Second), Reason: "Succeeded"},
		Versions: map[string]string{"ansible": "2.19", "python": "3"},
		Tasks:    []history.Task{task("Loop", "main.yml:1", "ok"), task("Loop", "main.yml:5", "ok"), task("Gone", "main.yml:9", "ok")},
		Writes: []history.Write{
			{Resource: "deployments.apps", Namespace: "one", Name: "x", Result: "created"},
			{Resource: "configmaps", Namespace: "one", Name: "x", Result: "unchanged"},
			{Resource: "services", Namespace: "one", Name: "x", Result: "refused", Code: 403},
		},
	}
	b := a
	b.ID, b.Generation, b.Trigger, b.Started, b.Finished, b.Reason = "bbbbbbbb", 2, "spec.size", start.Add(time.Hour), time.Time{}, ""
	b.Versions = map[string]string{"ansible": "2.20", "python": "3"}
	b.Tasks = []history.Task{task("Loop", "main.yml:2", "ok"), task("Loop", "main.yml:6", "changed"), task("New", "main.yml:8", "failed")}
	b.Tasks[2].Message = "no\x1b[2J room"
	b.Writes = []history.Write{{Resource: "deployments.apps", Namespace: "one", Name: "x", Result: "changed", Fields: []string{"spec.replicas"}}}
	var out bytes.Buffer
	must.Do(t, printDiff(&out, runsDiff{[2]history.Brief{a.Brief, b.Brief}, history.Compare(a, b)}))
	must.Be(t, "diff", diffed, out.String())

	must.Be(t, "a run and itself", true, history.Compare(a, a).None())
}

func TestTop(t *testing.T) {
	t.Parallel()
	now := time.Now()
	run := func(id, kind, name, result string, cpu float64, memory int64) history.Brief {
		return history.Brief{
			ID: id, Object: history.Object{Group: "g", Version: "v1", Kind: kind, Namespace: "one", Name: name}, Result: result,
			Started: now.Add(-time.Minute), Finished: now, CPU: cpu, Memory: memory << 20,
		}
	}
	runs := []history.Brief{run("1", "A", "a", "Failed", 1, 50), run("2", "A", "b", "Succeeded", 2, 40), run("3", "B", "c", "Succeeded", 2.5, 60), run("4", "A", "a", "Succeeded", 1.5, 70)}
	for by, want := range map[string]string{
		byKind: `KIND   RUNS   FAILED   CPU    CPU/RUN   TIME   MEMORY
A.g    3      1        4.5s   1.5s      3m0s   70Mi
B.g    1      0        2.5s   2.5s      1m0s   60Mi
`,
		byObject: `NAMESPACE   KIND   NAME   RUNS   FAILED   CPU    CPU/RUN   TIME   MEMORY
one         A      a      2      1        2.5s   1.2s      2m0s   70Mi
one         B      c      1      0        2.5s   2.5s      1m0s   60Mi
one         A      b      1      0        2.0s   2.0s      1m0s   40Mi
`,
	} {
		var out bytes.Buffer
		must.Do(t, (&table{out: &out}).print(topRows(sumUp(runs, by), by, &kindNames{wide: by == byKind})...))
		must.Be(t, by, want, out.String())
	}
	must.Be(t, "first of the runs", "3", sumUp(runs, byRun)[0].Run)
}

// Commands accept the names of runs that "get runs -o name" prints.
func TestRuns_ByTheirNames(t *testing.T) {
	const id = "72d6784c-71d4-43af-8ed1-9538a9411448"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.EscapedPath()) {
		case id:
			_ = json.NewEncoder(w).Encode(api.Run{Run: history.Run{Brief: history.Brief{ID: id}}})
		case "runs":
			_ = json.NewEncoder(w).Encode(api.RunList{})
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	setKubeconfig(t)
	for args, want := range map[string]int{
		"describe run run/" + id: 0, "report run/" + id: 0, "diff run/" + id + " " + id: 0,
		"cancel tea/green --run run/" + id: 3, // the ID is valid, and there is no cluster
		"describe run run/green":           5, // an object of a kind named Run
	} {
		words := append([]string{"rolewright"}, strings.Fields(args)...)
		if words[1] != "cancel" {
			words = append(words, "--server", server.URL)
		}
		if code, _, stderr := invoke(words...); code != want {
			t.Errorf("%s: code %d, want %d\n%s", args, code, want, stderr)
		}
	}
}

// setKubeconfig points commands to a cluster that does not answer.
func setKubeconfig(t *testing.T) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	must.Do(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n"), 0o600))
	t.Setenv("KUBECONFIG", config)
}

// top says which replica's history it sums up if other replicas have histories, too.
func TestTop_SaysWhoseRuns(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := api.RunList{Items: []history.Brief{{ID: "1", Finished: time.Now()}}}
		if !r.URL.Query().Has("continue") {
			list.Metadata = api.ListMeta{Continue: "1", Leads: true, Shards: &api.Shards{Replica: "pod-0", Holders: []string{"pod-0", "pod-1"}}}
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	setKubeconfig(t)
	code, _, stderr := invoke("rolewright", "top", "--server", server.URL)
	must.Be(t, "code", 0, code)
	must.Be(t, "what is said", "This is the history of the replica pod-0, which holds 1 of 2 shards: each replica has its own.\n", stderr)
}
