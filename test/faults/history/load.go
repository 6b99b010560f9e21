package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The files in a history's directory. All except plan.json, end.json and reference.json are
// JSON lines; each may be missing. Ledgers are named ledger-<replica>.jsonl.
const (
	auditFile     = "audit.jsonl"
	truthFile     = "truth.jsonl"
	clientFile    = "client.jsonl"
	driverFile    = "driver.jsonl"
	wireFile      = "wire.jsonl"
	seenFile      = "seen.jsonl"
	endFile       = "end.json"
	planFile      = "plan.json"
	referenceFile = "reference.json"
)

// Load reads a history. An error means that a file could not be read; invalid
// lines are listed in Notes.
func Load(dir string) (*History, error) {
	l := loader{h: &History{Dir: dir, runs: map[string]*Run{}, objects: map[string]*Object{}}}
	for _, step := range []func() error{l.driver, l.client, l.truth, l.ledgers, l.seen, l.clock, l.audit, l.plan, l.wire, l.ends, l.kept, l.secrets} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	l.merge()
	return l.h, nil
}

// loader is a history while it is being read.
type loader struct {
	h *History
	// offsets are wall clock minus boot clock, from all lines with both.
	offsets []time.Duration
	offset  time.Duration
	// longest is the longest time that a fault on the wire lasts.
	longest time.Duration
}

func (l *loader) path(name string) string { return filepath.Join(l.h.Dir, name) }

// both adds an instant that was recorded by both clocks.
func (l *loader) both(wall time.Time, boot Instant) {
	if !wall.IsZero() && boot != 0 {
		l.offsets = append(l.offsets, time.Duration(wall.UnixNano())-time.Duration(boot))
	}
}

func (l *loader) driver() error {
	return readLines(l.h, l.path(driverFile), func(e DriverEvent) {
		l.both(e.Time, e.Boot)
		l.h.Driver = append(l.h.Driver, e)
		switch e.Event {
		case "start", "exit", "signal", "freeze", "thaw", "kill", "quiet":
			l.h.hindered = append(l.h.hindered, e.Boot)
		}
	})
}

func (l *loader) client() error {
	return readLines(l.h, l.path(clientFile), func(o Operation) { l.h.Operations = append(l.h.Operations, o) })
}

// run returns the run with an ID, and adds it if it is new.
func (l *loader) run(id string) *Run {
	r := l.h.runs[id]
	if r == nil {
		r = &Run{ID: id}
		l.h.runs[id] = r
		l.h.Runs = append(l.h.Runs, r)
	}
	return r
}

func (l *loader) truth() error {
	return readLines(l.h, l.path(truthFile), func(t TruthLine) {
		l.both(t.Time, t.Boot)
		if t.Run == "" {
			return
		}
		r := l.run(t.Run)
		r.LastSign = max(r.LastSign, t.Boot)
		switch t.Event {
		case "dies":
			r.Dies = true
		case "begin":
			r.Begins++
			if r.Begin == 0 {
				r.Begin = t.Boot
			}
			r.UID, r.Name, r.Generation, r.Deleting = cmp.Or(t.UID, r.UID), t.Name, t.Generation, t.Deleting
			r.Forked = t.Forked
			r.Replica = cmp.Or(r.Replica, t.Replica)
			if t.Value != nil {
				r.Value, r.HasValue = *t.Value, true
			}
		case "end":
			r.End = &t
		}
	})
}

func (l *loader) ledgers() error {
	files, err := filepath.Glob(l.path("ledger*.jsonl"))
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	for _, file := range files {
		replica := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "ledger"), ".jsonl"), "-")
		err := readLines(l.h, file, func(line LedgerLine) {
			l.both(line.Time, line.Boot)
			// A fork server begins with a run of its own, its self-check.
			if line.Run == "" || strings.HasPrefix(line.Run, "check-") {
				return
			}
			r := l.run(line.Run)
			r.Replica = cmp.Or(replica, r.Replica)
			r.UID = cmp.Or(r.UID, line.UID)
			switch line.Event {
			case "start":
				r.LedgerStart = &line
				if r.Begin == 0 {
					r.Generation, r.Deleting = line.Generation, line.Deleting
				}
			case "end":
				if r.LedgerEnd == nil || r.LedgerEnd.Reason == reasonReaped || line.Reason != reasonReaped && line.Reason != reasonAbandoned {
					r.LedgerEnd = &line
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// seen reads when runs were last seen to have a process.
func (l *loader) seen() error {
	return readLines(l.h, l.path(seenFile), func(s Seen) {
		if r := l.h.runs[s.Run]; r != nil {
			r.LastSign = max(r.LastSign, s.Last)
		}
	})
}

// clock determines the offset of the wall clock to the boot clock: the median, so that
// lines that were written late have no effect.
func (l *loader) clock() error {
	if len(l.offsets) > 0 {
		slices.Sort(l.offsets)
		l.offset = l.offsets[len(l.offsets)/2]
	}
	return nil
}

func (l *loader) instant(wall time.Time) Instant {
	if wall.IsZero() {
		return 0
	}
	return Instant(time.Duration(wall.UnixNano()) - l.offset)
}

func (l *loader) audit() error {
	err := readLines(l.h, l.path(auditFile), func(r Request) {
		if r.Stage != "" && r.Stage != "ResponseComplete" && r.Stage != "Panic" {
			return
		}
		r.Received, r.Done = l.instant(r.RequestReceivedTimestamp), l.instant(r.StageTimestamp)
		r.Sent = r.Received
		l.h.Requests = append(l.h.Requests, &r)
	})
	slices.SortStableFunc(l.h.Requests, func(a, b *Request) int { return cmp.Compare(a.Received, b.Received) })
	return err
}

func (l *loader) wire() error {
	byID := map[string]*Request{}
	for _, r := range l.h.Requests {
		byID[r.AuditID] = r
	}
	return readLines(l.h, l.path(wireFile), func(s Forwarded) {
		if s.Fault != "" {
			l.h.hindered = append(l.h.hindered, s.Sent, s.Sent.Plus(l.longest))
		}
		if r := byID[s.AuditID]; r != nil && s.AuditID != "" {
			r.Replica = s.Replica
			if s.Sent != 0 && s.Sent < r.Received {
				r.Sent = s.Sent
			}
		}
	})
}

func (l *loader) ends() error {
	for name, into := range map[string]**End{endFile: &l.h.End, referenceFile: &l.h.Reference} {
		data, err := os.ReadFile(l.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		*into = &End{}
		if err := json.Unmarshal(data, *into); err != nil {
			return fmt.Errorf("read the history: %s: %w", l.path(name), err)
		}
	}
	return nil
}

// plan determines the longest time that a fault of the plan lasts.
func (l *loader) plan() error {
	var plan struct {
		Rules []struct{ Action struct{ For metav1.Duration } }
	}
	data, err := os.ReadFile(l.path(planFile))
	if err == nil {
		err = json.Unmarshal(data, &plan)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the history: %s: %w", l.path(planFile), err)
	}
	for _, r := range plan.Rules {
		l.longest = max(l.longest, r.Action.For.Duration)
	}
	return nil
}

// kept records what is left below the runner roots, if they are in the history's directory.
func (l *loader) kept() error {
	dirs, err := filepath.Glob(l.path("runner-*/.runs/*/*"))
	for _, dir := range dirs {
		if l.h.Kept == nil {
			l.h.Kept = map[string][]string{}
		}
		uid := filepath.Base(filepath.Dir(dir))
		l.h.Kept[uid] = append(l.h.Kept[uid], filepath.Base(dir))
	}
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	return nil
}

// merge combines the records from different sources.
func (l *loader) merge() {
	for _, r := range l.h.Requests {
		if r.done() && r.writes() && len(r.ResponseObject) > 0 {
			l.version(r)
		}
	}
	for _, o := range l.h.Objects {
		slices.SortStableFunc(o.Versions, func(a, b *Version) int { return cmp.Compare(a.ResourceVersion, b.ResourceVersion) })
	}
	slices.SortStableFunc(l.h.Runs, func(a, b *Run) int { return cmp.Compare(a.Started(), b.Started()) })
	slices.Sort(l.h.hindered)
}

// stored is the part of a stored object, or of the answer to its deletion, that the checks need.
type stored struct {
	Kind     string
	Details  struct{ Name, UID string }
	Metadata struct {
		Name, UID, ResourceVersion string
		Generation                 int64
		DeletionTimestamp          *string
		Finalizers                 []string
	}
	Spec   struct{ Value any }
	Status json.RawMessage
}

// end records the request that ended the object.
func (o *Object) end(r *Request) {
	o.Deleted, o.Going, o.Gone = cmp.Or(o.Deleted, r.Received), cmp.Or(o.Going, r.Received), cmp.Or(o.Gone, r.Done)
}

func (l *loader) version(r *Request) {
	var s stored
	if err := json.Unmarshal(r.ResponseObject, &s); err != nil {
		l.h.Notes = append(l.h.Notes, fmt.Sprintf("answer to %s: %v", r, err))
		return
	}
	if s.Kind == "Status" {
		if o := l.h.objects[s.Details.UID]; o != nil && r.Verb == "delete" {
			o.end(r)
		}
		return
	}
	if s.Metadata.UID == "" {
		return
	}
	o := l.h.objects[s.Metadata.UID]
	if o == nil {
		o = &Object{UID: s.Metadata.UID, Name: s.Metadata.Name, Resource: r.ObjectRef.Resource, values: map[int64]string{}}
		l.h.objects[o.UID] = o
		l.h.Objects = append(l.h.Objects, o)
	}
	v := &Version{
		Request: r, Generation: s.Metadata.Generation, Deleting: s.Metadata.DeletionTimestamp != nil,
		Finalizers: s.Metadata.Finalizers,
	}
	v.ResourceVersion, _ = strconv.ParseInt(s.Metadata.ResourceVersion, 10, 64) // always a number, with etcd
	if r.operator() {
		l.look("status "+r.String(), string(s.Status))
	}
	// A status that another client has damaged says nothing.
	_ = json.Unmarshal(s.Status, &v.Status)
	o.values[v.Generation] = valueText(s.Spec.Value)
	if v.Deleting {
		o.Deleted = cmp.Or(o.Deleted, r.Received)
	}
	if v.Deleting && len(v.Finalizers) == 0 || r.Verb == "delete" && !v.Deleting {
		o.end(r)
		if r.Verb == "delete" && !v.Deleting {
			return // the answer is the object as it was
		}
	}
	o.Versions = append(o.Versions, v)
}

// valueText returns a spec's value as a run writes it.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
