package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

// The bundle has the logs of the Pod's containers and of their previous instances. TestHistory covers the rest of a
// bundle.
func TestPodLogs(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: "operator-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other"}, {Name: "manager", Ports: []corev1.ContainerPort{{Name: apiPortName}}}}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}}},
	}
	text := must.Get(podLogs(t.Context(), fake.NewClientset(&pod), []corev1.Pod{pod}))(t)
	for _, want := range []string{"Pod operator-0, container manager, previous true\nfake logs", "previous false\nfake logs"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log is\n%s\nwant %q", text, want)
		}
	}
}

// Of a long log, the bundle has the end, from the beginning of a line.
func TestTailOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "a\nb\n": "a\nb\n", "line 1\nline 2\nline 3\n": "line 3\n", strings.Repeat("x", 100): strings.Repeat("x", 10)} {
		end, cut, err := tailOf(strings.NewReader(text), 10)
		must.Do(t, err)
		must.Be(t, "end", want, string(end))
		must.Be(t, "cut", len(text) > 10, cut)
	}
}

func TestFlagsOf_LeavesOutWhatMayBeSecret(t *testing.T) {
	t.Parallel()
	got := flagsOf([]string{"run", "--leader-elect", "--ansible-args=-e password=x", "--ansible-args", "-e password=y", "--ansible-args", "--extra-vars=password=z", "--api-port=6791"})
	must.Be(t, "flags", []string{"--leader-elect", "--ansible-args", "--ansible-args", "--ansible-args", "--api-port=6791"}, got)
}

// A login proxy in the operator's Pod may have secrets in its flags.
func TestTakenOf_HasNoFlagsOfOtherPrograms(t *testing.T) {
	is := takenOf(corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "proxy", Image: "proxy:1", Args: []string{"--client-secret=x"}},
		{Name: "manager", Image: "operator:1", Args: []string{"--leader-elect"}, Ports: []corev1.ContainerPort{{Name: apiPortName}}},
	}}})
	must.Be(t, "flags", "--leader-elect", strings.Join(is.Flags, " "))
	must.Be(t, "images", "proxy:1 operator:1", strings.Join(is.Images, " "))
}

// If a run is no longer kept, the bundle still has the runs after it, and says which replica they come from.
func TestSomeRuns(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.Root+"/runs", func(w http.ResponseWriter, _ *http.Request) {
		list := api.RunList{Metadata: api.ListMeta{Shards: &api.Shards{Replica: "a"}}, Items: []history.Brief{{ID: "old"}, {ID: "new"}}}
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("GET "+api.Root+"/runs/new", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Run{Run: history.Run{Brief: history.Brief{ID: "new"}}})
	})
	mux.HandleFunc("GET "+api.Root+"/runs/old", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Message: "no such run is kept"})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	is := must.Get((&reader{base: server.URL, client: server.Client()}).someRuns(t.Context()))(t).(supportHistory)
	must.Be(t, "runs, details and replica", []string{"2", "new", "a"}, []string{strconv.Itoa(len(is.Runs)), is.Details[0].ID, is.Metadata.Shards.Replica})
}

// The command also prints that parts of the bundle are missing.
func TestBundle_SaysThatPartsAreMissing(t *testing.T) {
	t.Parallel()
	for want, problems := range map[string][]string{"": nil, "1 part is missing: see problems.txt\n": {"a"}, "2 parts are missing: see problems.txt\n": {"a", "b"}} {
		var said bytes.Buffer
		b := &bundle{tar: tar.NewWriter(io.Discard), stderr: &said, problems: problems}
		b.addProblems()
		must.Be(t, "what is said", want, said.String())
	}
}
