package controller

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/test/must"
)

// What a run wrote is returned without control sequences of a terminal. A returned list never changes, because readers of
// events keep it.
func TestHistory_Writes(t *testing.T) {
	t.Parallel()
	store := must.Get(history.Open(history.Options{Path: filepath.Join(t.TempDir(), "runs.db"), MaxRuns: 1, MaxBytes: 1 << 20, Log: logr.Discard()}))(t)
	recorder := history.NewRecorder(store, nil)
	from := recorder.Cursor()
	r := &reconciler{now: time.Now, opts: &Options{History: recorder}}
	s := &scope{runID: "it", object: &unstructured.Unstructured{Object: map[string]any{}}, mask: redact.New(), progress: &progress{}}
	r.recordHistory(s)
	r.wrote(s, proxy.Written{Child: proxy.Child{Name: "a\x1b[2Jb\nc"}, Verb: "update", Code: 404, Fields: []string{"data.hunter2-hunter2"}})
	s.mask.Add(t.Context(), "hunter2-hunter2")
	r.concludeHistory(s, status.Run{ID: "it", Finished: time.Now()})
	events, _, _ := recorder.Events(from)
	must.Be(t, "fields in the event", []string{"data.hunter2-hunter2"}, events[1].Write.Fields)
	is := must.Get(recorder.Run("it"))(t).Writes[0]
	must.Be(t, "name", "ab c", is.Name)
	must.Be(t, "fields at the end", []string{s.mask.Mask("data.hunter2-hunter2")}, is.Fields)
}

// A shortened name does not keep the long name in memory.
func TestHistory_PlainNameIsACopy(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 1<<20)
	if kept := plainName(name, maxWrittenName); unsafe.StringData(kept) == unsafe.StringData(name) {
		t.Error("the whole name stays in memory with what is kept of it")
	}
}
