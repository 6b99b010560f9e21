package runner

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// Masker hides secret values in what a run says. Safe for concurrent use; a
// value is known to it before the run can print it.
type Masker interface {
	// Mask returns text without values.
	Mask(text string) string
	// MaskTail is like Mask, for text that may begin in the middle of a value.
	MaskTail(text string) string
	// Name is like Mask for the name of the task at place (file:line), or for that
	// of a play where place is empty. A name that stands in the content as it is
	// may be shown whatever values it holds.
	Name(name, place string) string
}

// Placer is a [Masker] of a run whose content is a copy. Place returns a text that names
// files of the copy with the names of those that the author knows.
type Placer interface{ Place(text string) string }

// MaskAround is [Masker.Mask] for a text of which these parts are no secret.
func MaskAround(m Masker, text string, kept ...string) string {
	if len(kept) == 0 {
		return m.Mask(text)
	}
	if kept[0] == "" {
		return MaskAround(m, text, kept[1:]...)
	}
	pieces := strings.SplitN(text, kept[0], 100) // no text names a part more often
	for i, piece := range pieces {
		pieces[i] = MaskAround(m, piece, kept[1:]...)
	}
	return strings.Join(pieces, kept[0])
}

// masked returns the event without values. What says where in the content a
// task stands stays: action, role, file and line are the author's, and not data.
func masked(e jobevent.Event, m Masker) jobevent.Event {
	if m == nil {
		return e
	}
	d := &e.Data
	place := d.TaskPath
	if p, ok := m.(Placer); ok {
		e.Stdout, d.TaskPath = p.Place(e.Stdout), p.Place(place)
	}
	maskedNames(&e, m, place)
	for _, text := range []*string{&d.TaskArgs, &d.Host} {
		*text = m.Mask(*text)
	}
	d.Res = maskedJSON(d.Res, m, e.RequeuesAfter())
	if d.Stats != nil {
		st := *d.Stats
		for _, counts := range []*map[string]int{
			&st.OK, &st.Changed, &st.Failures, &st.Dark, &st.Skipped, &st.Rescued, &st.Ignored, &st.Processed,
		} {
			byHost := make(map[string]int, len(*counts))
			for host, n := range *counts {
				byHost[m.Mask(host)] += n
			}
			*counts = byHost
		}
		d.Stats = &st
	}
	return e
}

// maskedNames hides values in the names of task and play, and in the output, which
// names one where it begins. The task is at place.
func maskedNames(e *jobevent.Event, m Masker, place string) {
	d := &e.Data
	task, play := m.Name(d.Task, place), m.Name(d.Play, "")
	var kept []string
	switch e.Kind {
	case jobevent.TaskStart, jobevent.HandlerTaskStart:
		if task == d.Task && (d.Name == d.Task || d.Name == d.Role+" : "+d.Task) {
			kept = []string{"[" + d.Name + "]", d.TaskPath}
		}
	case jobevent.PlayStart:
		if play == d.Play && d.Name == d.Play {
			kept = []string{"[" + d.Name + "]"}
		}
	}
	if kept == nil {
		d.Name = m.Mask(d.Name)
	}
	e.Stdout = MaskAround(m, e.Stdout, kept...)
	d.Task, d.Play = task, play
}

// isDecisive tells the keys of a result by which a run is judged. They are Ansible's own, so that they say nothing of a value; what
// they say counts also where all that a run says is withheld.
func isDecisive(key string) bool {
	switch key {
	case "changed", "failed", "failed_when_result", "unreachable", "results", "parked":
		return true
	}
	return false
}

// period is the key of a result of requeue_after with the time to the next run.
const period = "period"

// isPeriod tells whether a value is a time, as requeue_after reads it.
func isPeriod(value any) bool {
	text, _ := value.(string)
	_, err := time.ParseDuration(text)
	return err == nil
}

// maskedJSON hides values in the keys, strings and numbers of JSON; it returns
// text itself if there are none in it. What the judgement of a run takes stays, and of a result of
// requeue_after the period.
func maskedJSON(text json.RawMessage, m Masker, requeues bool) json.RawMessage {
	if len(text) == 0 {
		return text
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil
	}
	tree, changed := maskedTree(tree, m, requeues)
	if !changed {
		return text
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

func maskedTree(tree any, m Masker, requeues bool) (_ any, changed bool) {
	switch t := tree.(type) {
	case string:
		text := m.Mask(t)
		return text, text != t
	case json.Number:
		if text := m.Mask(t.String()); text != t.String() {
			return text, true
		}
	case []any:
		for i, v := range t {
			is, c := maskedTree(v, m, requeues)
			t[i], changed = is, changed || c
		}
	case map[string]any:
		for key, v := range t {
			if requeues && key == period && isPeriod(v) {
				continue
			}
			is, c := maskedTree(v, m, requeues)
			name := key
			if !isDecisive(key) {
				name = m.Mask(key)
			}
			if name != key {
				delete(t, key)
			}
			t[name], changed = is, changed || c || name != key
		}
	}
	return tree, changed
}
