package jobevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

var (
	errNotUTF8  = errors.New("invalid UTF-8")
	errNoObject = errors.New("not a JSON object")
	errNoKind   = errors.New("no kind of event")
)

// Decode reads one event. Memory is bounded, whatever the input: long strings
// are cut, and a member that stays too long is dropped. A field of the wrong
// type is left at zero; of repeated keys the last one counts. An error means
// that r holds no event at all, or that reading failed.
func Decode(r io.Reader) (Event, error) {
	text, err := shrink(r)
	if err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	if !utf8.Valid(text) {
		return Event{}, fmt.Errorf("decode event: %w", errNotUTF8)
	}
	if err := json.Unmarshal(text, &struct{}{}); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if text = bytes.TrimSpace(text); text[0] != '{' {
		return Event{}, fmt.Errorf("decode event: %w", errNoObject)
	}
	e := decodeEvent(text)
	if e.Kind == "" {
		return Event{}, fmt.Errorf("decode event: %w", errNoKind)
	}
	return e, nil
}

func decodeEvent(text []byte) Event {
	var e Event
	var data []byte
	fields(text, func(key string, value []byte) {
		switch key {
		case "uuid":
			e.UUID = asString(value)
		case "counter":
			e.Counter = asInt(value)
		case "event":
			e.Kind = Kind(asString(value))
		case "created":
			e.Created = asTime(value)
		case "stdout":
			e.Stdout = asString(value)
		case "event_data":
			data = value
		}
	})
	e.Data = decodeData(data)
	if e.Kind == PlaybookStats {
		e.Data.Stats = decodeStats(data)
	}
	return e
}

func decodeData(text []byte) Data {
	var d Data
	fields(text, func(key string, value []byte) {
		switch key {
		case "playbook_uuid":
			d.PlaybookUUID = asString(value)
		case "play":
			d.Play = asString(value)
		case "task":
			d.Task = asString(value)
		case "task_uuid":
			d.TaskUUID = asString(value)
		case "task_action":
			d.TaskAction = asString(value)
		case "resolved_action":
			d.ResolvedAction = asString(value)
		case "task_args":
			d.TaskArgs = asString(value)
		case "task_path":
			d.TaskPath = asString(value)
		case "role":
			d.Role = asString(value)
		case "host":
			d.Host = asString(value)
		case "name":
			d.Name = asString(value)
		case "ignore_errors":
			d.IgnoreErrors = asBool(value)
		case "is_conditional":
			// ansible-runner's callback marks handlers this way, as Ansible 1
			// did; on other tasks it is always false.
			d.Handler = asBool(value)
		case "res":
			d.Res = nil
			if !isNull(value) {
				// A copy does not keep the whole text alive.
				d.Res = bytes.Clone(value)
			}
		}
	})
	return d
}

// decodeStats decodes the stats of an event; nil unless every count is a number for a host.
func decodeStats(text []byte) *Stats {
	var s Stats
	members := map[string]*map[string]int{
		"ok": &s.OK, "changed": &s.Changed, "failures": &s.Failures, "dark": &s.Dark,
		"skipped": &s.Skipped, "rescued": &s.Rescued, "ignored": &s.Ignored, "processed": &s.Processed,
	}
	fields(text, func(key string, value []byte) {
		if counts, ok := members[key]; ok {
			*counts = asCounts(value)
		}
	})
	for counts := range maps.Values(members) {
		if *counts == nil {
			return nil
		}
	}
	return &s
}

// fields calls visit with the members of a JSON object in order, including
// repeated keys; value is a part of object. Other values have no members.
//
// Decoding into a struct would be shorter, but it matches keys regardless of
// case, merges repeated ones, and stops at the first value of a wrong type.
func fields(object []byte, visit func(key string, value []byte)) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return
	}
	var value json.RawMessage
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok || dec.Decode(&value) != nil {
			return
		}
		end := int(dec.InputOffset())
		visit(key, object[end-len(value):end:end])
	}
}

// elements calls visit with the elements of a JSON array; see fields.
func elements(array []byte, visit func(value []byte)) {
	dec := json.NewDecoder(bytes.NewReader(array))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return
	}
	var value json.RawMessage
	for dec.More() {
		if dec.Decode(&value) != nil {
			return
		}
		end := int(dec.InputOffset())
		visit(array[end-len(value) : end : end])
	}
}

func isNull(value []byte) bool { return string(value) == "null" }

func asBool(value []byte) bool { return string(value) == "true" }

func asString(value []byte) string {
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

func asInt(value []byte) int {
	var n int
	if json.Unmarshal(value, &n) != nil || n < 0 {
		return 0
	}
	return n
}

// asTime accepts times with an offset (ansible-runner 2.4), and times without one,
// which are in UTC (2.3).
func asTime(value []byte) time.Time {
	s := asString(value)
	for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() > 1 && t.Year() < 9999 { // other times cannot be written in UTC
			return t.UTC()
		}
	}
	return time.Time{}
}

// maxHosts is the largest number of hosts in the stats. An operator's inventory
// has one or a few; stats with more are not believed.
const maxHosts = 10_000

// asCounts returns nil unless value maps names to whole numbers from 0.
func asCounts(value []byte) map[string]int {
	counts := map[string]int{}
	if len(value) == 0 || value[0] != '{' {
		return nil
	}
	fields(value, func(key string, value []byte) {
		var n int
		if counts == nil || json.Unmarshal(value, &n) != nil || isNull(value) || len(counts) == maxHosts {
			counts = nil
			return
		}
		counts[key] = n
	})
	if !plausible(counts) {
		return nil
	}
	return counts
}

func plausible(counts map[string]int) bool {
	absurd := func(n int) bool { return n < 0 || n > math.MaxInt32 }
	return len(counts) <= maxHosts && !slices.ContainsFunc(slices.Collect(maps.Values(counts)), absurd)
}
