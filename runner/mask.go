package runner

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// Masker hides secret values in the output of a run. It is safe for concurrent
// use, and knows each value before the run can print it.
type Masker interface {
	// Mask returns text with the secret values hidden.
	Mask(text string) string
	// MaskTail is like Mask, for text that may begin in the middle of a value.
	MaskTail(text string) string
	// Name is like Mask for the name of the task at place (file:line), or for the
	// name of a play if place is empty. A name that stands in the content
	// literally may be shown even if it contains values.
	Name(name, place string) string
}

// Placer is a [Masker] of a run whose content is a copy. Place replaces the names of the
// copied files in a text by the names that the author knows.
type Placer interface{ Place(text string) string }

// MaskAround is [Masker.Mask] for a text, except for the parts in kept, which are no secrets.
func MaskAround(m Masker, text string, kept ...string) string {
	if len(kept) == 0 {
		return m.Mask(text)
	}
	if kept[0] == "" {
		return MaskAround(m, text, kept[1:]...)
	}
	pieces := strings.SplitN(text, kept[0], 100) // no text contains a part more often
	for i, piece := range pieces {
		pieces[i] = MaskAround(m, piece, kept[1:]...)
	}
	return strings.Join(pieces, kept[0])
}

// masked returns the event with secret values hidden. Action, role, file and line
// of a task stay: they come from the content's author, and are not data.
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

// maskedNames hides values in the names of the task and the play, and in the output,
// which contains the name when a task or play begins. place is the task's file:line.
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

// hide masks what the command has said. It is called when all values are known that the command asked to mask.
func (t *translation) hide() {
	mask := t.req.Mask
	if mask == nil {
		return
	}
	t.Message, t.Problem = mask.Mask(t.Message), mask.Mask(t.Problem)
	if after := t.summary.RequeueAfter; after != nil && !isPeriod(after.Period) {
		after.Period = mask.Mask(after.Period)
	}
	for i, warning := range t.Warnings {
		t.Warnings[i] = mask.Mask(warning)
	}
}

// isDecisive tells whether a run is judged by this key of a result. Such keys are Ansible's own, so they reveal no value.
// They are needed even if all output of a run is withheld.
func isDecisive(key string) bool {
	switch key {
	case "changed", "failed", "failed_when_result", "unreachable", "results", "parked":
		return true
	}
	return false
}

// period is the key, in a result of requeue_after, of the time until the next run.
const period = "period"

// isPeriod tells whether a value is a duration that requeue_after accepts.
func isPeriod(value any) bool {
	text, _ := value.(string)
	_, err := time.ParseDuration(text)
	return err == nil
}

// maskedJSON hides values in the keys, strings and numbers of JSON; it returns
// text itself if it contains none. The decisive keys stay, and so does the period
// in a result of requeue_after, for which requeues is true.
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
