package jobevent

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/test/must"
)

// TestSummary_ForeignEventsChangeNothing puts all events of other runs after each event of this run.
func TestSummary_ForeignEventsChangeNothing(t *testing.T) {
	unread := cmp.Options{cmpopts.IgnoreFields(Summary{}, "Foreign"), cmp.AllowUnexported(
		Summary{}, recent[string, startedTask]{}, recent[hostTask, failedItems]{}, recent[hostFailure, Failure]{},
		startedTask{}, hostTask{}, hostFailure{}, failedItems{},
	)}
	for _, playbook := range []string{"ok", "failed", "loop_failed", "requeue"} {
		var want, got Summary
		foreign := 0
		for i, text := range captured(t, playbook) {
			own := decode(t, text)
			want.Observe(own)
			got.Observe(own)
			for _, other := range []string{"requeue", "hosts", "no_hosts", "handler_failed"} {
				for _, text := range captured(t, other) {
					e := decode(t, text)
					if other == playbook {
						e.Data.PlaybookUUID = "another"
					}
					if i%2 == 1 && !e.Kind.isMessage() {
						e.Data.PlaybookUUID = "" // a forged event may lack it
					}
					if e.Data.PlaybookUUID == "" && e.Kind.isMessage() {
						continue
					}
					if got.Observe(e) {
						t.Fatalf("%s of %s was accepted", e.Kind, other)
					}
					foreign++
				}
			}
		}
		must.Be(t, playbook, want, got, unread)
		if got.Foreign != foreign {
			t.Errorf("%s: Foreign = %d, want %d", playbook, got.Foreign, foreign)
		}
	}
}

func TestSummary_AcceptsOnlyItsOwn(t *testing.T) {
	stats := &Stats{OK: map[string]int{"h": 1}}
	begin := Event{Kind: PlaybookStart, Data: Data{PlaybookUUID: "a"}}
	end := Event{Kind: PlaybookStats, Data: Data{PlaybookUUID: "a", Stats: stats}}
	tests := map[string]struct {
		before []Event // observed first
		event  Event
		want   bool
	}{
		"a message before the start":       {nil, Event{Kind: Verbose}, true},
		"a warning before the start":       {nil, Event{Kind: "warning"}, true},
		"a message of another run":         {nil, Event{Kind: Verbose, Data: Data{PlaybookUUID: "b"}}, false},
		"a start without UUID":             {nil, Event{Kind: PlaybookStart}, false},
		"a start with a huge UUID":         {nil, Event{Kind: PlaybookStart, Data: Data{PlaybookUUID: strings.Repeat("a", 300)}}, false},
		"a task before the start":          {nil, Event{Kind: TaskStart, Data: Data{PlaybookUUID: "a"}}, false},
		"a task without UUID before":       {nil, Event{Kind: TaskStart}, false},
		"stats before the start":           {nil, end, false},
		"a second start":                   {[]Event{begin}, begin, false},
		"a task":                           {[]Event{begin}, Event{Kind: TaskStart, Data: Data{PlaybookUUID: "a"}}, true},
		"a task without UUID":              {[]Event{begin}, Event{Kind: TaskStart}, false},
		"an unknown kind":                  {[]Event{begin}, Event{Kind: "news", Data: Data{PlaybookUUID: "a"}}, true},
		"an unknown kind without UUID":     {[]Event{begin}, Event{Kind: "news"}, false},
		"stats":                            {[]Event{begin}, end, true},
		"second stats":                     {[]Event{begin, end}, end, false},
		"a message after the stats":        {[]Event{begin, end}, Event{Kind: Verbose}, true},
		"stats that are none":              {[]Event{begin}, Event{Kind: PlaybookStats, Data: Data{PlaybookUUID: "a"}}, false},
		"stats with a negative count":      {[]Event{begin}, withFailures(-1), false},
		"stats with an absurd count":       {[]Event{begin}, withFailures(math.MaxInt64), false},
		"stats with a large count":         {[]Event{begin}, withFailures(math.MaxInt32), true},
		"stats after stats that were none": {[]Event{begin, withFailures(-1)}, end, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var s Summary
			for _, e := range tt.before {
				s.Observe(e)
			}
			before := s.Events
			got := s.Observe(tt.event)
			if got != tt.want {
				t.Errorf("accepted = %t, want %t", got, tt.want)
			}
			if counted := s.Events > before; counted != got {
				t.Errorf("accepted = %t, but counted = %t", got, counted)
			}
		})
	}
}

func withFailures(n int) Event {
	return Event{Kind: PlaybookStats, Data: Data{PlaybookUUID: "a", Stats: &Stats{Failures: map[string]int{"h": n}}}}
}
