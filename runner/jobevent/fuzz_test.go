package jobevent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func FuzzDecode(f *testing.F) {
	for _, playbook := range []string{"ok", "loop_failed", "forged"} {
		for _, text := range captured(f, playbook) {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte(`{"event":"playbook_on_stats","event_data":` + statsText("1") + `}`))
	f.Add([]byte(`{"event":"x","event_data":{"res":{"a":[NaN,-Infinity,"\ud800\udc00\\\""]}}}`))
	f.Add([]byte(`[[[{"event":`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// The result must not depend on how the input is cut into pieces.
		whole, err := Decode(bytes.NewReader(text))
		halves, err2 := Decode(iotest.HalfReader(bytes.NewReader(text)))
		if (err == nil) != (err2 == nil) || !cmp.Equal(whole, halves) {
			t.Fatalf("%v, %+v\n%v, %+v", err, whole, err2, halves)
		}
		small, err3 := shrink(bytes.NewReader(text))
		if json.Valid(text) && len(text) < maxString && (err3 != nil || !bytes.Equal(small, text)) {
			t.Errorf("valid text was changed: %v\n%q\n%q", err3, text, small)
		}
		if err != nil {
			return
		}
		if whole.Data.Res != nil && (!json.Valid(whole.Data.Res) || !utf8.Valid(whole.Data.Res)) {
			t.Errorf("Res is not JSON: %q", whole.Data.Res)
		}
		if !utf8.ValidString(whole.Stdout) || whole.Counter < 0 || whole.Created.Location() != time.UTC {
			t.Errorf("event = %+v", whole)
		}
		if st := whole.Data.Stats; st != nil && (whole.Kind != PlaybookStats || !st.plausible()) {
			t.Errorf("stats = %+v", st)
		}
	})
}

func FuzzSummary(f *testing.F) {
	for _, playbook := range []string{"hosts", "loop_failed", "no_log_loop", "requeue", "forged"} {
		f.Add(strings.Join(captured(f, playbook), "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Summary
		n, decoded := 0, 0
		for line := range strings.Lines(text) {
			n++
			e, err := Decode(strings.NewReader(line))
			if err != nil {
				s.ObserveError(err)
				continue
			}
			decoded++
			uuid, complete := s.PlaybookUUID, s.Complete
			if accepted := s.Observe(e); accepted && uuid != "" && e.Data.PlaybookUUID != uuid && !e.Kind.isMessage() {
				t.Errorf("accepted %+v in the run %q", e, uuid)
			}
			if uuid != "" && s.PlaybookUUID != uuid || complete && !s.Complete {
				t.Errorf("the run changed to %q, complete: %t", s.PlaybookUUID, s.Complete)
			}
		}
		if s.Events+s.Foreign+s.Bad != n || decoded < s.Events+s.Foreign {
			t.Errorf("%d lines, but %d events, %d foreign, %d bad", n, s.Events, s.Foreign, s.Bad)
		}
		if min(s.OK, s.Changed, s.Skipped, s.Failures, s.Unreachable, s.Rescued, s.Ignored, s.TasksStarted) < 0 {
			t.Errorf("negative totals: %+v", s)
		}
		if s.Complete != (s.Stats != nil) {
			t.Errorf("Complete = %t, Stats = %v", s.Complete, s.Stats)
		}
		for _, failures := range [][]Failure{s.Failed, s.Culprits()} {
			if len(failures) > maxFailures {
				t.Errorf("%d failures", len(failures))
			}
			for _, f := range failures {
				checkPlain(t, f)
				if f.Message == "" || len(f.Items) > min(maxItems, f.ItemsFailed) {
					t.Errorf("failure = %+v", f)
				}
			}
		}
		if r := s.RequeueAfter; r != nil && (len(r.Period) > maxName || !utf8.ValidString(r.Period)) {
			t.Errorf("period %q", r.Period)
		}
	})
}
