package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/console"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func says(t *testing.T, out, want string, says bool) {
	t.Helper()
	if strings.Contains(out, want) != says {
		t.Errorf("%q is said: %t, in\n%s", want, !says, out)
	}
}

// describe says that the run is one of a command, and leaves out what was not measured.
func TestDescribeRun_OfACommand(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	r := history.Run{
		Brief: history.Brief{ID: "1", Started: at, Finished: at.Add(time.Second), Reason: "Succeeded", CPU: 0.5}, Prepared: at, Ended: at.Add(time.Second),
		Writes: []history.Write{{Verb: "update", Result: "unchanged", Task: -1}},
	}
	var out bytes.Buffer
	must.Do(t, describeRun(&out, r, at))
	says(t, out.String(), "run 1s", true)
	says(t, out.String(), "Ansible", false)
	says(t, out.String(), "0.50 s of CPU", true)
	says(t, out.String(), "MiB", false)
	says(t, out.String(), "1 write changed nothing", true)
}

// describe does not say of a check that it has written objects.
func TestDescribeRun_OfACheck(t *testing.T) {
	t.Parallel()
	r := history.Run{Brief: history.Brief{ID: "1", Mode: "check"}, Writes: []history.Write{{Verb: "create", Result: "created", Task: -1, DryRun: true}}, WritesLeftOut: 2}
	var out bytes.Buffer
	must.Do(t, describeRun(&out, r, time.Now()))
	says(t, out.String(), "(dry run)", true)
	says(t, out.String(), "mode    check", true)
	says(t, out.String(), "and 2 more", true)
}

// The explanation of an object that has failed contains the message of the failure.
func TestPrintExplanation_HasTheMessageOfAFailure(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	for result, message := range map[string]bool{"Failed": true, "Succeeded": false} {
		e := controller.Explanation{Last: &controller.ExplainedRun{ID: "1", Finished: &at, Result: result, Reason: result, Message: "no room"}}
		var out bytes.Buffer
		must.Do(t, printExplanation(&out, &unstructured.Unstructured{}, e, queuePlace{}, at))
		says(t, out.String(), "no room", message)
	}
}

// Users without a token are told how to get one.
func TestCredentials_SayHowToHaveAToken(t *testing.T) {
	t.Parallel()
	_, err := new(readerOptions).credentials(t.Context(), &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("c")}}, nil)
	says(t, err.Error(), "kubectl create serviceaccount", true)
}

// describe knows only runs, and says so if it is given an object.
func TestDescribe_OfAnObject(t *testing.T) {
	if code, _, stderr := invoke("rolewright", "describe", "tea/green"); code != 2 || !strings.Contains(stderr, `did you mean "rolewright describe run tea/green"?`) {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr := invoke("rolewright", "describe", "run", "tea/"); code != 2 || !strings.Contains(stderr, "give KIND or KIND/NAME") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// The cause of a run is said once.
func TestWhy(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]history.Brief{
		"period": {Cause: "period"}, "content: roles and playbooks": {Cause: "content", Trigger: "content: roles and playbooks"},
		"dependent: ConfigMap one/a": {Cause: "dependent", Trigger: "ConfigMap one/a"},
	} {
		must.Be(t, "why", want, why(b.Cause, b.Trigger, "%s: %s"))
	}
}

// dev and test end with the exit code of exit-codes.md if they cannot reach the cluster.
func TestDevAndTest_WithoutAServer(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler()) // the kubeconfig does not have its certificate
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	writeProject(t, map[string]string{
		"watches.yaml": "- {version: v1, group: example.com, kind: Tea, role: tea}\n", "roles/tea/tasks/main.yml": "", "tests/green.yaml": "steps: [{apply: {apiVersion: example.com/v1, kind: Tea, metadata: {name: green}}}]\n",
		"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"" + server.URL + "\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n",
	})
	t.Setenv("KUBECONFIG", "kubeconfig")
	for _, args := range []string{"dev", "test --current-cluster"} {
		if code, stdout, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 3 || !strings.HasPrefix(stderr, "Error: connect to ") || strings.Contains(stdout, "is watched") {
			t.Errorf("%s: code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// dev says what it does not answer: requests of the API server.
func TestDev_SaysWhatItDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		v := watches.Validation{Rule: "true"}
		if asks {
			v = watches.Validation{Call: watches.Call{Command: &watches.Command{Path: "/bin/true"}}}
		}
		var out bytes.Buffer
		d := &dev{console: console.New(&out, false, time.Now)}
		d.announce([]watches.Watch{{Webhooks: watches.Webhooks{Validate: []watches.Validation{v}}}})
		says(t, out.String(), `test them with "rolewright test"`, asks)
	}
}

// logs follows the object of the run that it shows, and no other object with that name. It says which replica the history
// comes from.
func TestLogs_OfOneObject(t *testing.T) {
	t.Parallel()
	brief := history.Brief{ID: "8c51a3f0", Started: time.Now(), Finished: time.Now(), Object: history.Object{Group: "a.example.com", Kind: "Tea", Namespace: "one", Name: "green"}}
	older := brief // a run of another object, which is still in progress
	older.ID, older.Group, older.Started, older.Finished = "11111111", "b.example.com", brief.Started.Add(-time.Hour), time.Time{}
	meta := api.ListMeta{Cursor: "7", Shards: &api.Shards{Replica: "r1", Holders: []string{"r1", "r2"}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Root+"/runs", func(w http.ResponseWriter, r *http.Request) {
		list := api.RunList{Metadata: meta, Items: []history.Brief{older, brief}}
		if r.URL.Query().Get("name") != brief.Name {
			list.Items = nil
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("GET "+api.Root+"/runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		run := history.Run{Brief: brief}
		if r.PathValue("id") == older.ID {
			run.Brief = older
		}
		_ = json.NewEncoder(w).Encode(api.Run{Metadata: meta, Run: run})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	var out, stderr bytes.Buffer
	l := tasksLog{
		reader: &reader{base: server.URL, client: http.DefaultClient, close: func() {}}, out: &out, stderr: &stderr,
		query: url.Values{"kind": {"tea"}, "name": {"green"}},
	}
	cursor, err := l.catchUp(t.Context(), "")
	must.Do(t, err)
	must.Be(t, "where events go on", "7", cursor)
	must.Be(t, "the object that events are asked of", "group=a.example.com&kind=Tea&limit=1&name=green&namespace=one", l.query.Encode())
	says(t, out.String(), "run 8c51a3f0 of Tea.a.example.com/green in one", true)
	says(t, stderr.String(), "This replica makes no runs", true)
	says(t, stderr.String(), "the replica r1, which holds 1 of 2 shards", true)

	l.query = url.Values{"kind": {"tea"}, "name": {"black"}}
	_, err = l.catchUp(t.Context(), "8c51")
	says(t, err.Error(), "the run is one of Tea.a.example.com/green in one", true)
}

// logs -f ends when another replica takes over the run, and says how to follow the run there.
func TestLogs_EndsWithARunThatGoesToAnotherReplica(t *testing.T) {
	t.Parallel()
	brief := history.Brief{ID: "8c51a3f0-long", Object: history.Object{Kind: "Tea", Name: "green"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Root+"/runs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.RunList{Metadata: api.ListMeta{Leads: true}, Items: []history.Brief{brief}})
	})
	mux.HandleFunc("GET "+api.Root+"/runs/{id}", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Run{Run: history.Run{Brief: brief}})
	})
	mux.HandleFunc("GET "+api.Root+"/events", func(w http.ResponseWriter, _ *http.Request) {
		data := must.Get(json.Marshal(history.Event{Kind: history.RunLeft, Run: brief}))(t)
		fmt.Fprintf(w, "id: 8\nevent: %s\ndata: %s\n\n", history.RunLeft, data)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	var out, stderr bytes.Buffer
	l := tasksLog{
		reader: &reader{base: server.URL, client: http.DefaultClient, close: func() {}}, out: &out, stderr: &stderr,
		query: url.Values{"kind": {"tea"}, "name": {"green"}}, follow: true,
	}
	says(t, l.show(t.Context(), "").Error(), "-f --run 8c51a3f0 ", true)
}

// If logs waits for the first run, it then follows the object of that run, and no other object with that name.
func TestLogs_OfTheObjectThatRunsFirst(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := tasksLog{out: &out, query: url.Values{"kind": {"tea"}, "name": {"green"}}}
	for _, in := range [][2]string{{"1", "one"}, {"2", "two"}, {"3", "one"}} {
		o := history.Object{Group: "a.example.com", Version: "v" + in[0], Kind: "Tea", Namespace: in[1], Name: "green"}
		l.event(history.Event{Kind: history.RunStarted, Run: history.Brief{ID: in[0], Object: o}})
	}
	for run, shown := range map[string]bool{"run 1 of": true, "run 2 of": false, "run 3 of": true} {
		says(t, out.String(), run, shown)
	}
	must.Be(t, "the object that events are asked of next", "group=a.example.com&kind=Tea&name=green&namespace=one", l.query.Encode())
}
