package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/net/html"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	plaintext "github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

// allTexts returns the texts of the corpus, values and keys, and texts that would be HTML elements in a page.
func allTexts(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	var add func(value any)
	add = func(value any) {
		switch v := value.(type) {
		case string:
			all[plaintext.Cut(v, 4<<10)] = true
		case []any:
			for _, item := range v {
				add(item)
			}
		case map[string]any:
			for key, item := range v {
				add(key)
				add(item)
			}
		}
	}
	for _, c := range corpus(t) {
		if c.name != "10 000 keys" { // they are all alike
			add(c.decode(t))
		}
	}
	for _, text := range runs.Hostile() {
		add(text)
	}
	return slices.Sorted(maps.Keys(all))
}

// shownRuns returns a run for each text, and two that have all texts as tasks, writes, warnings and versions.
func shownRuns(texts []string) (each []history.Run, plain, loaded history.Run) {
	now := time.Now()
	for i, text := range texts {
		each = append(each, runs.HostileRun(i, text, now.Add(-time.Minute)))
	}
	plain = runs.Run(len(texts), history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: "shop", Name: "it"}, now)
	loaded = plain
	plain.ID, loaded.ID = "plain-run", "loaded-run"
	loaded.Tasks, loaded.Writes, loaded.Versions = nil, nil, map[string]string{}
	for i, run := range each {
		task, write := run.Tasks[1], history.Write{Verb: texts[i], Resource: texts[i], Namespace: texts[i], Name: texts[i], Result: texts[i], Fields: []string{texts[i]}, Task: i}
		loaded.Tasks, loaded.Writes, loaded.Warnings = append(loaded.Tasks, task), append(loaded.Writes, write), append(loaded.Warnings, texts[i])
		loaded.Versions[texts[i]] = texts[i]
	}
	return each, plain, loaded
}

// cluster is an API server with an object that owns a ConfigMap for each text.
func cluster(t *testing.T, texts []string) *httptest.Server {
	t.Helper()
	const version = group + "/v1"
	var probes, owned []any
	for i, text := range texts {
		uid := fmt.Sprint("u", i)
		probes = append(probes, map[string]any{
			"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": text, "namespace": text, "uid": uid, "annotations": map[string]any{text: text}},
			"status": map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": text, "reason": text, "message": text}},
				"ansible": map[string]any{
					"dependents": []any{"configmaps.v1.", text},
					"lastRun":    map[string]any{"id": text, "cause": text, "trigger": text, "reason": text, "result": text, "started": "2026-11-01T10:00:00Z", "finished": "2026-11-01T10:00:01Z"},
				},
			},
		})
		owned = append(owned, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": text, "namespace": text, "uid": "c" + uid, "ownerReferences": []any{map[string]any{"apiVersion": version, "kind": kind, "name": "all", "uid": "all"}}},
		})
	}
	root := map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "all", "namespace": "default", "uid": "all"},
		"status": map[string]any{"ansible": map[string]any{"dependents": []any{"configmaps.v1."}}},
	}
	resource := func(groupVersion, name, kind string) map[string]any {
		return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": []any{
			map[string]any{"name": name, "singularName": strings.TrimSuffix(name, "s"), "namespaced": true, "kind": kind, "verbs": []string{"get", "list", "watch"}},
		}}
	}
	in := map[string]any{"groupVersion": version, "version": "v1"}
	answers := map[string]any{
		"/api":                         map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1":                      resource("v1", "configmaps", "ConfigMap"),
		"/apis":                        map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{"name": group, "versions": []any{in}, "preferredVersion": in}}},
		"/apis/" + version:             resource(version, "probes", kind),
		"/apis/" + version + "/probes": map[string]any{"kind": kind + "List", "apiVersion": version, "items": probes},
		"/apis/" + version + "/namespaces/default/probes/all": root,
		"/api/v1/configmaps": map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "items": owned},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // clients send no token without TLS
		answer, there := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !there {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": r.URL.Path}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestCorpus_OnTheTerminal makes the commands show all texts: none of them controls the terminal.
func TestCorpus_OnTheTerminal(t *testing.T) {
	t.Parallel()
	dir, texts := t.TempDir(), allTexts(t)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir, "github.com/rolewright/rolewright/cmd/rolewright")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	each, plain, loaded := shownRuns(texts)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "`+cluster(t, texts).URL+
		`", "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": "t"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, 0o600)
	server := "--server=" + runs.New(t, append(each, plain, loaded)...).URL()
	operators := func(args ...string) []string { return append(args, "-A", server) }
	mark := each[slices.Index(texts, runs.Hostile()[0])] // it must be in the output; otherwise nothing was shown
	for _, tt := range []struct {
		code int
		args []string
	}{
		{0, operators("get", "runs", "--limit=1000", "-o", "wide")},
		{0, operators("get", "runs", "--limit=1000", "-o", "json")},
		{0, operators("get", "runs", "--limit=1000", "-o", "yaml")},
		{0, operators("get", "runs", "--limit=1000", "-o", "jsonpath={.items[*].name}")},
		{0, operators("top", "--limit=0", "--by=object")},
		{0, operators("describe", "run", mark.ID)},
		{0, operators("describe", "run", loaded.ID)},
		{0, operators("describe", "run", loaded.ID, "-o", "json")},
		{0, operators("logs", "web/it", "--run", loaded.ID)},
		{1, operators("diff", plain.ID, loaded.ID)},
		{1, operators("diff", mark.ID, loaded.ID)},
		{1, operators("diff", plain.ID, loaded.ID, "-o", "json")},
		{0, []string{"get", "objects", "probe", "-A", "-o", "wide"}},
		{0, []string{"get", "objects", "probe", "-A", "-o", "json"}},
		{0, []string{"get", "objects", "probe", "-A", "-o", "name"}},
		{0, []string{"tree", "probe/all"}},
		{0, []string{"tree", "probe/all", "-o", "json"}},
	} {
		cmd := exec.Command(filepath.Join(dir, "rolewright"), tt.args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		said, _ := cmd.CombinedOutput() // the exit code says it
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%q: exit code %d, want %d\n%.2000s", tt.args, code, tt.code, said)
		}
		if !strings.Contains(string(said), runs.Mark) {
			t.Errorf("%q shows nothing of it:\n%.2000s", tt.args, said)
		}
		unwanted := plaintext.Unwanted
		if slices.Contains(tt.args, "yaml") { // its writer keeps marks of text direction
			unwanted = func(r rune) bool { return unicode.IsControl(r) && plaintext.Unwanted(r) }
		}
		if at := bytes.IndexFunc(said, unwanted); at >= 0 {
			t.Errorf("%q prints a control character: %.100q", tt.args, said[max(0, at-20):])
		}
	}
}

// TestCorpus_InAReport makes reports show each text. They have the same elements and attributes as for a harmless text.
func TestCorpus_InAReport(t *testing.T) {
	t.Parallel()
	now := time.Now()
	report := func(run history.Run) string {
		var b bytes.Buffer
		must.Do(t, page.Report(&b, run, now))
		return b.String()
	}
	want := outline(t, report(runs.HostileRun(1, "harmless", now)))
	for _, text := range allTexts(t) {
		if strings.TrimSpace(plaintext.Plain(text)) == "" {
			continue // there is nothing to show
		}
		said := report(runs.HostileRun(1, text, now))
		if at := strings.IndexFunc(said, plaintext.Unwanted); at >= 0 {
			t.Errorf("%q: a control character: %.40q", text, said[at:])
		}
		must.Be(t, fmt.Sprintf("%.200q", text), want, outline(t, said))
	}
}

// outline returns the elements of a document as a browser sees them, with their attributes.
func outline(t *testing.T, document string) []string {
	t.Helper()
	var all []string
	for n := range must.Get(html.Parse(strings.NewReader(document)))(t).Descendants() {
		switch n.Type {
		case html.CommentNode:
			all = append(all, "a comment")
		case html.ElementNode:
			element := n.Data
			for _, a := range n.Attr {
				element += " " + a.Key
			}
			all = append(all, element)
		}
	}
	return all
}
