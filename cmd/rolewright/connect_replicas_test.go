package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

// replicaOf is one replica of an operator. It has these runs, of which the first is in progress, and a queue of the same
// objects.
func replicaOf(t *testing.T, pod string, leads bool, shards *api.Shards, runs ...string) *reader {
	t.Helper()
	began := time.Unix(1e9, 0)
	var all []history.Brief
	waiting := []api.Waiting{}
	for i, id := range runs {
		of := history.Object{Kind: "A", Name: id}
		all = append(all, history.Brief{ID: id, Object: of, Started: began.Add(time.Duration(len(id)) * time.Hour)})
		if i > 0 {
			all[i].Finished = all[i].Started.Add(time.Minute)
		}
		waiting = append(waiting, api.Waiting{Object: of, Position: (i + 1) % len(runs)})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Root+"/runs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.RunList{Metadata: api.ListMeta{Leads: leads, Shards: shards}, Items: all})
	})
	mux.HandleFunc("GET "+api.Root+"/queue", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Queue{Metadata: api.QueueMeta{Leads: leads, Shards: shards}, Items: waiting})
	})
	mux.HandleFunc("GET "+api.Root+"/runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, is := range all {
			if strings.HasPrefix(is.ID, r.PathValue("id")) {
				_ = json.NewEncoder(w).Encode(api.Run{Run: history.Run{Brief: is}})
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Message: "no such run"})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &reader{client: server.Client(), base: server.URL, close: func() {}, pod: pod}
}

// Replicas that share the objects are all asked. Otherwise only the leader is asked.
func TestReader_AsksAllReplicas(t *testing.T) {
	t.Parallel()
	of := func(name string) *api.Shards { return &api.Shards{Replica: name, Holders: []string{"a", "b"}} }
	broken := &reader{client: http.DefaultClient, base: "http://127.0.0.1:0", close: func() {}, pod: "broken"}
	for name, tt := range map[string]struct {
		replicas           []*reader
		runs, queue, fails string
	}{
		"two that share": {
			replicas: []*reader{replicaOf(t, "a", true, of("a"), "rr", "1", "333"), replicaOf(t, "b", true, of("b"), "r", "22", "4444")},
			runs:     "r rr 4444 333 22", queue: "rr r 1 22 333", // limits: three ended runs, five waiting objects
		},
		"one leads":              {replicas: []*reader{replicaOf(t, "a", false, nil, "old", "older"), replicaOf(t, "b", true, nil, "r", "22")}, runs: "r 22", queue: "r 22"},
		"one leads, one is gone": {replicas: []*reader{broken, replicaOf(t, "b", true, nil, "r", "22")}, runs: "r 22", queue: "r 22"},
		"none leads":             {replicas: []*reader{replicaOf(t, "a", false, nil, "r"), replicaOf(t, "b", false, nil)}, runs: "r", queue: "r"},
		"two operators":          {replicas: []*reader{replicaOf(t, "a", true, nil, "r"), replicaOf(t, "b", true, nil)}, fails: "--operator-pod"},
		"one of those that share does not answer": {
			replicas: []*reader{replicaOf(t, "a", true, of("a"), "r"), broken}, fails: "ask Pod broken: ",
		},
	} {
		r := tt.replicas[0]
		r.others = tt.replicas[1:]
		list, err := r.runs(t.Context(), url.Values{"limit": {"3"}})
		waits, err2 := r.queue(t.Context(), url.Values{"limit": {"5"}})
		r.others = nil // for the next case
		if tt.fails != "" {
			if err == nil || err2 == nil || !strings.Contains(err.Error(), tt.fails) || !strings.Contains(err2.Error(), tt.fails) {
				t.Errorf("%s: %v and %v, want errors with %q", name, err, err2, tt.fails)
			}
			continue
		}
		must.Do(t, err)
		must.Do(t, err2)
		var runs, queue []string
		for _, is := range list.Items {
			runs = append(runs, is.ID)
		}
		for _, is := range waits.Items {
			queue = append(queue, is.Name)
		}
		must.Be(t, "runs of "+name, tt.runs, strings.Join(runs, " "))
		must.Be(t, "queue of "+name, tt.queue, strings.Join(queue, " "))
	}
}

func TestReader_FindsTheReplicaOfARun(t *testing.T) {
	t.Parallel()
	shards := &api.Shards{}
	r := replicaOf(t, "a", true, shards, "r")
	r.others = []*reader{replicaOf(t, "b", true, shards, "s")}
	if answer, at, err := r.runAt(t.Context(), "s"); err != nil || answer.Run.ID != "s" || at.pod != "b" {
		t.Errorf("%+v of %v, %v", answer, at, err)
	}
	r.others = append(r.others, replicaOf(t, "c", true, shards, "s", "st1", "su", "r"), replicaOf(t, "d", true, shards, "st2"))
	for id, want := range map[string]string{"st": `run "st": several IDs start with this, give more characters: st1, st2`, "su": "", "s": "", "st1": ""} {
		if answer, err := r.run(t.Context(), id); (err != nil || answer.Run.ID != id) && (err == nil || err.Error() != want) {
			t.Errorf("%s: %q, %v, want %q", id, answer.Run.ID, err, want)
		}
	}
	r.others = r.others[:1]
	if _, err := r.run(t.Context(), "t"); err == nil || err.Error() != `none of 2 replicas has the run "t"` {
		t.Error(err)
	}
}
