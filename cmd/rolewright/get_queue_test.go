package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/shard"
	"github.com/rolewright/rolewright/test/must"
)

const queueWatched = `POSITION   NAMESPACE   KIND   NAME   CLASS    CAUSE     WAITS   HELD BY            UNTIL
1          one         A      a      change   changed   10d     runs of the kind   <none>
2          one         A      b      period   period    10d     urgent runs        <none>
1          one         A      b      period   period    10d     <none>             <none>
<none>     one         A      a      change   changed   10d     waits no more      <none>
<none>     one         A      c      <none>   content   10d     window             2026-05-07T01:00:00Z
`

// get queue -w prints the queue, and then only objects that change or leave it.
func TestGetQueue_Watch(t *testing.T) {
	t.Parallel()
	since, until := time.Now().Add(-10*24*time.Hour-time.Hour), time.Date(2026, 5, 7, 1, 0, 0, 0, time.UTC)
	waits := func(name string, position int, class, cause, held string) api.Waiting {
		return api.Waiting{
			Object:   history.Object{Group: "g", Version: "v1", Kind: "A", Namespace: "one", Name: name},
			Position: position, Class: class, Cause: cause, Held: held, Since: since,
		}
	}
	closed := waits("c", 0, "", "content", "window")
	closed.Until = until
	queues := [][]api.Waiting{
		{waits("a", 1, "change", "changed", "kind"), waits("b", 2, "period", "period", "urgent")},
		{waits("a", 1, "change", "changed", "kind"), waits("b", 2, "period", "period", "urgent")},
		{waits("b", 1, "period", "period", "")},
		{waits("b", 1, "period", "period", ""), closed},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := api.Queue{Metadata: api.QueueMeta{Leads: true}, Items: queues[min(asked, len(queues)-1)]}
		if asked++; asked > len(queues) {
			cancel() // all of it was printed
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	r := &reader{client: server.Client(), base: server.URL, close: func() {}}
	if err := getQueue(cmd, r, url.Values{}, listOutput{format: outputTable}, time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	must.Be(t, "queue", queueWatched, out.String())
}

// If nothing waits, the operator is fine.
func TestGetQueue_NothingWaits(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Queue{Metadata: api.QueueMeta{Leads: true}})
	}))
	defer server.Close()
	var out, stderr bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	cmd.SetErr(&stderr)
	r := &reader{client: server.Client(), base: server.URL, close: func() {}}
	must.Do(t, getQueue(cmd, r, url.Values{}, listOutput{format: outputTable}, 0))
	must.Be(t, "output", "no run waits\n", out.String()+stderr.String())
}

// If replicas share the objects, only the replica that runs an object knows its place in the queue.
func TestQueuePlace_NamesTheReplica(t *testing.T) {
	t.Parallel()
	const uid = "7f3a4c1e-8d55-4b8e-9d3c-0a4b6c2f1e77"
	mine := shard.Of(uid, 2)
	holders := []string{"pod-0", "pod-1"}
	waits := []api.Waiting{{Position: 4, Class: "change"}}
	for name, c := range map[string]struct {
		is    api.Queue
		place string
	}{
		"one leader": {api.Queue{Metadata: api.QueueMeta{Leads: true}, Items: waits}, "  "},
		"a standby":  {api.Queue{}, "   the replica that was asked makes no runs"},
		"the one that runs it": {
			api.Queue{Metadata: api.QueueMeta{Leads: true, Shards: &api.Shards{Replica: holders[mine], Holders: holders}}, Items: waits},
			fmt.Sprintf("%s %d/2 ", holders[mine], mine),
		},
		"another one": {
			api.Queue{Metadata: api.QueueMeta{Leads: true, Shards: &api.Shards{Replica: holders[1-mine], Holders: holders}}},
			fmt.Sprintf("%s %d/2 the replica %s was asked, which does not run the object", holders[mine], mine, holders[1-mine]),
		},
		"no shards in the answer": {api.Queue{Metadata: api.QueueMeta{Leads: true, Shards: &api.Shards{}}}, "  "},
	} {
		is := placeIn(c.is, uid)
		if got := is.Replica + " " + is.Shard + " " + is.Unknown; strings.TrimSpace(got) != strings.TrimSpace(c.place) {
			t.Errorf("%s: %q, want %q", name, got, c.place)
		}
		if is.Waiting == nil != (len(c.is.Items) == 0) {
			t.Errorf("%s: waiting %v", name, is.Waiting)
		}
	}
}

// A new position counts as a change only if positions are asked for. If the list does not show the whole queue, no object
// is reported as gone from it.
func TestQueueChanges(t *testing.T) {
	t.Parallel()
	queue := func(leftOut int, names ...string) (q api.Queue) {
		q.Metadata = api.QueueMeta{Leads: true, LeftOut: leftOut}
		for i, name := range names {
			q.Items = append(q.Items, api.Waiting{Object: history.Object{Name: name}, Position: i + 1})
		}
		return q
	}
	other := queue(0)
	other.Metadata.Leads = false
	for name, tt := range map[string]struct {
		last, list    api.Queue
		positions     bool
		changed, gone int
	}{
		"moves up":               {queue(0, "a", "b"), queue(0, "b"), false, 0, 1},
		"moves up, and is asked": {queue(0, "a", "b"), queue(0, "b"), true, 1, 1},
		"is left out":            {queue(0, "a", "b"), queue(1, "c", "a"), false, 1, 0},
		"another one leads":      {queue(0, "a"), other, false, 0, 0},
	} {
		changed, gone := queueChanges(tt.last, tt.list, tt.positions)
		must.Be(t, name, []int{tt.changed, tt.gone}, []int{len(changed), len(gone)})
	}
}
