package executors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// verdicts are the playbooks of the verdict table, and roles those of its roles.
const (
	verdicts = "../../runner/testdata/playbooks"
	roles    = "../../runner/testdata/roles"
)

// sample is one element of the corpus.
type sample struct {
	name    string
	content runner.Content
	options sampleOptions
}

// sampleOptions say how a sample is run. A playbook of the corpus has them in the comment "# options:" in its first line.
// In texts, {dir} is the playbook's directory, {out} the directory for the run's files, and {run} its private data
// directory.
type sampleOptions struct {
	Verbosity int
	Cmdline   string
	Env       map[string]string
	Vars      map[string]any
	// Inventory replaces the built-in one.
	Inventory string
	// SkipFacts is for roles.
	SkipFacts bool
	// Cluster is for playbooks that need a cluster: the run gets a kubeconfig, and its own namespace in the variable
	// namespace_of_run.
	Cluster bool
	// Unordered is for playbooks whose hosts do not wait for each other.
	Unordered bool
	// Succeeds is for playbooks that show something only if they succeed: both runs must.
	Succeeds bool
	// Stop is for playbooks that do not end: the run is stopped in the first task, when that has become "sleep 600".
	Stop bool
}

// verdictRows are those rows of the verdict table (runner.TestVerdict_RealAnsible)
// that are more than a playbook, and if all are wanted, those whose playbooks need something.
func verdictRows(all bool) []sample {
	inventory := absolute("../../runner/testdata/inventory_hosts")
	playbook := func(name string) runner.Content { return runner.Content{Playbook: absolute(verdicts + "/" + name)} }
	role := func(name string) runner.Content { return runner.Content{Role: absolute(roles + "/" + name)} }
	rows := []sample{
		{"role", role("works"), sampleOptions{SkipFacts: true}},
		{"missing role, run as such", role("no_such_role"), sampleOptions{SkipFacts: true}},
		{"missing playbook", playbook("no_such_playbook.yml"), sampleOptions{}},
		{"unknown argument", playbook("success.yml"), sampleOptions{Cmdline: "--no-such-argument"}},
		{"argument without its value", playbook("success.yml"), sampleOptions{Cmdline: "--tags"}},
		{"unbalanced quotes", playbook("success.yml"), sampleOptions{Cmdline: "--tags 'a"}},
		{"limit to nobody", playbook("success.yml"), sampleOptions{Cmdline: "--limit nobody"}},
		{"stubborn", playbook("stubborn.yml"), sampleOptions{Stop: true}},
	}
	if all {
		rows = append(rows, []sample{
			{"role with facts", role("works"), sampleOptions{}},
			{"failing role", role("fails"), sampleOptions{SkipFacts: true}},
			{"script", playbook("script.yml"), sampleOptions{Vars: map[string]any{"script": "echo $0; exit 3", "dir": "/"}}},
			{"fill", playbook("fill.yml"), sampleOptions{Vars: map[string]any{"victim": "/dev/null", "more": 20}}},
			{"sleep", playbook("sleep.yml"), sampleOptions{Stop: true}},
		}...)
	}
	for i := range rows {
		rows[i].name = "row " + rows[i].name
	}
	if !all {
		return rows
	}
	for _, name := range []string{"ignore_unreachable", "any_errors_fatal", "several_hosts", "unreachable"} {
		// One host after the other; otherwise their order would depend on their processes.
		rows = append(rows, sample{"row " + name + " on hosts", playbook(name + ".yml"), sampleOptions{Inventory: inventory, Cmdline: "-f 1"}})
	}
	return rows
}

// elsewhere are playbooks in the verdict table's directory that are not samples of their own: they are in verdictRows.
// pour.yml writes endlessly and is stopped when the run's directory is found too large, so no two runs of it end with the
// same event, however they are made. runner.TestRun_IsStoppedWhenItWritesTooMuch shows that a forked run is stopped, too.
func elsewhere() []string {
	return []string{"script.yml", "fill.yml", "sleep.yml", "stubborn.yml", "pour.yml"}
}

// corpus returns all samples. The verdict table's playbooks, whose verdicts runner's tests have, are among them if each case
// is wanted, as make test-all has it.
func corpus(t *testing.T) []sample {
	t.Helper()
	all := os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") != ""
	samples := verdictRows(all)
	add := func(pattern string, except ...string) {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			if base := filepath.Base(name); !slices.Contains(except, base) {
				in := filepath.Base(filepath.Dir(name))
				content := runner.Content{Playbook: absolute(name)}
				samples = append(samples, sample{in + " " + strings.TrimSuffix(base, ".yml"), content, optionsOf(t, name)})
			}
		}
	}
	add("testdata/corpus/*.yml", "vars.yml")
	add("testdata/corpus/*/*.yml", "secret.yml")
	if all {
		add(verdicts+"/*.yml", elsewhere()...)
	}
	return samples
}

func absolute(path string) string {
	path, _ = filepath.Abs(path) // fails if there is no working directory
	return path
}

// optionsOf reads the options of a playbook.
func optionsOf(t *testing.T, playbook string) sampleOptions {
	t.Helper()
	text := must.Get(os.ReadFile(playbook))(t)
	var opts sampleOptions
	line, _, _ := strings.Cut(string(text), "\n")
	if given, ok := strings.CutPrefix(line, "# options:"); ok {
		if err := json.Unmarshal([]byte(given), &opts); err != nil {
			t.Fatalf("%s: %v", playbook, err)
		}
	}
	return opts
}

// place is where one of the two runs of a sample takes place.
type place struct {
	out, namespace, kubeconfig, server string
}

// request returns the request for one run of a sample.
func (s sample) request(t *testing.T, p place) runner.Request {
	t.Helper()
	id := uuid.NewString()
	req := runner.Request{ID: id, Dir: filepath.Join(t.TempDir(), id), Content: s.content}
	req.Verbosity, req.SkipFacts = s.options.Verbosity, s.options.SkipFacts
	fill := strings.NewReplacer("{dir}", filepath.Dir(s.content.Playbook), "{out}", p.out, "{run}", req.Dir).Replace
	req.Cmdline, req.Inventory = fill(s.options.Cmdline), fill(s.options.Inventory)
	vars := map[string]any{"out": p.out, "namespace_of_run": p.namespace, "server": p.server}
	for name, value := range s.options.Vars {
		vars[name] = value
	}
	req.Env = map[string]string{}
	for name, value := range s.options.Env {
		req.Env[name] = fill(value)
	}
	if s.options.Cluster {
		req.Env["K8S_AUTH_KUBECONFIG"] = p.kubeconfig
	}
	var err error
	if req.ExtraVars, err = json.Marshal(vars); err != nil {
		t.Fatal(err)
	}
	return req
}

// web is a server to which playbooks send requests.
func web(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header()["Date"] = nil
			fmt.Fprint(w, text)
		}
	}
	mux.HandleFunc("/text", answer("text/plain", "text\n"))
	mux.HandleFunc("/json", answer("application/json", `{"a": [1, 2]}`))
	mux.Handle("/redirect", http.RedirectHandler("/text", http.StatusFound))
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1<<10)
		n, _ := r.Body.Read(body)
		user, password, _ := r.BasicAuth()
		kind, test := r.Header.Get("Content-Type"), r.Header.Get("X-Test")
		answer("text/plain", fmt.Sprintln(r.Method, kind, test, r.UserAgent(), user, password, string(body[:n])))(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}
