package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

const queueWatched = `POSITION   NAMESPACE   KIND   NAME   CLASS    CAUSE     WAITS   HELD BY            UNTIL
1          one         A      a      change   changed   10d     runs of the kind   <none>
2          one         A      b      period   period    10d     urgent runs        <none>
1          one         A      b      period   period    10d     <none>             <none>
<none>     one         A      a      change   changed   10d     waits no more      <none>
<none>     one         A      c      <none>   content   10d     window             2026-05-07T01:00:00Z
`

// get queue -w prints what waits, and then only what changes, or waits no more.
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

// The position alone is a change only where it is asked for; nothing is said to have left a
// queue that is not shown as a whole.
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
