package runner

import (
	"bytes"
	"encoding/json"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// Masker hides secret values in what a run says. Safe for concurrent use; a
// value is known to it before the run can print it.
type Masker interface {
	// Mask returns text without values.
	Mask(text string) string
	// MaskTail is like Mask, for text that may begin in the middle of a value.
	MaskTail(text string) string
}

// masked returns the event without values. What says where in the content a
// task stands stays: action, role, file and line are the author's, and not data.
func masked(e jobevent.Event, m Masker) jobevent.Event {
	if m == nil {
		return e
	}
	e.Stdout = m.Mask(e.Stdout)
	d := &e.Data
	for _, text := range []*string{&d.Play, &d.Task, &d.TaskArgs, &d.Host, &d.Name} {
		*text = m.Mask(*text)
	}
	d.Res = maskedJSON(d.Res, m)
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

// maskedJSON hides values in the keys, strings and numbers of JSON; it returns
// text itself if there are none in it.
func maskedJSON(text json.RawMessage, m Masker) json.RawMessage {
	if len(text) == 0 {
		return text
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil
	}
	tree, changed := maskedTree(tree, m)
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

func maskedTree(tree any, m Masker) (_ any, changed bool) {
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
			is, c := maskedTree(v, m)
			t[i], changed = is, changed || c
		}
	case map[string]any:
		for key, v := range t {
			is, c := maskedTree(v, m)
			name := m.Mask(key)
			if name != key {
				delete(t, key)
			}
			t[name], changed = is, changed || c || name != key
		}
	}
	return tree, changed
}
