// Package report reads what a command reports while it runs: lines of JSON in a file. Its
// use of memory is bounded for any input. It knows neither processes nor clusters.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// Bounds on what a run may report.
const (
	MaxLine  = 64 << 10 // bytes of a line
	MaxBytes = 4 << 20  // of all lines
	MaxLines = 10_000
)

// Type is the type of a report.
type Type string

// The types.
const (
	Progress  Type = "progress"
	Result    Type = "result"
	Condition Type = "condition"
	Status    Type = "status"
	Event     Type = "event"
	Metric    Type = "metric"
	Requeue   Type = "requeue"
	Redact    Type = "redact"
	// Reference names an object that the run has read: the object becomes an input of the run.
	Reference Type = "reference"
)

// Verdict is the result that a command reports.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Failed  Verdict = "failed"
	Waiting Verdict = "waiting"
)

// Report is one line. Only the fields of its type are set.
type Report struct {
	Type Type
	// Line is the number of the line, from 1.
	Line int
	// Step, Message, Diff, Done and Total belong to a progress, Message also to a result.
	// Diff is what the step changes; Done of Total parts of it are done.
	Step, Message string
	Diff          string
	Done, Total   int64
	// Verdict, Changed and Task belong to a result.
	Verdict Verdict
	Changed bool
	Task    string
	// After is the duration of a requeue, unparsed.
	After string
	// Value is the value of a redact.
	Value string
	// Body is, for a condition, a status, an event or a metric, the body that the modules of
	// the collection send for it, and for a reference the [Object].
	Body json.RawMessage
	// Unknown names the fields that have no effect; none if the type itself is unknown.
	Unknown []string
}

// Object is the object that a reference names, as the command has written it.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Known tells whether the type of the report is known, so that it has an effect.
func (r Report) Known() bool { return fieldsOf(r.Type) != nil }

// fieldsOf returns the names of a type's fields; nil if there is no such type.
func fieldsOf(t Type) []string {
	switch t {
	case Progress:
		return []string{"step", "message", "done", "total", "diff"}
	case Result:
		return []string{"verdict", "changed", "message", "task"}
	case Condition:
		return []string{"conditionType", "status", "reason", "message", "remove"}
	case Status:
		return []string{"patch"}
	case Event:
		return []string{"eventType", "reason", "message", "related"}
	case Metric:
		return []string{"name", "description", "labels", "counter", "gauge", "histogram", "summary"}
	case Requeue:
		return []string{"after"}
	case Redact:
		return []string{"value"}
	case Reference:
		return []string{"apiVersion", "kind", "namespace", "name"}
	}
	return nil
}

// line has the fields of all types except metric.
type line struct {
	Step          string                     `json:"step"`
	Message       string                     `json:"message"`
	Done          int64                      `json:"done"`
	Total         int64                      `json:"total"`
	Diff          string                     `json:"diff"`
	Verdict       Verdict                    `json:"verdict"`
	Changed       bool                       `json:"changed"`
	Task          string                     `json:"task"`
	After         string                     `json:"after"`
	Value         string                     `json:"value"`
	ConditionType string                     `json:"conditionType"`
	Remove        bool                       `json:"remove"`
	Status        string                     `json:"status"`
	Reason        string                     `json:"reason"`
	EventType     string                     `json:"eventType"`
	Related       json.RawMessage            `json:"related"`
	Patch         map[string]json.RawMessage `json:"patch"`
	APIVersion    string                     `json:"apiVersion"`
	Kind          string                     `json:"kind"`
	Namespace     string                     `json:"namespace"`
	Name          string                     `json:"name"`
}

// parse reads one line, without its line break.
func parse(text []byte) (Report, error) {
	switch {
	case len(text) > MaxLine:
		return Report{}, fmt.Errorf("it is longer than %d bytes", MaxLine)
	case bytes.IndexByte(text, 0) >= 0:
		return Report{}, errors.New("it has a NUL character: reports are text")
	case !utf8.Valid(text):
		return Report{}, errors.New("it is not UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return Report{}, errors.New(`it is not a JSON object such as {"type":"progress","message":"…"}`)
	}
	var r Report
	if err := json.Unmarshal(members["type"], &r.Type); err != nil || r.Type == "" {
		return Report{}, errors.New(`it has no "type", a text`)
	}
	delete(members, "type")
	fields := fieldsOf(r.Type)
	if fields == nil {
		return r, nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(fields, name) {
			r.Unknown = append(r.Unknown, name)
			delete(members, name)
		}
	}
	if r.Type == Metric {
		return r, r.encode(members)
	}
	known, err := json.Marshal(members)
	var l line
	if err == nil {
		err = json.Unmarshal(known, &l)
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return Report{}, fmt.Errorf("its field %q is of a wrong type: %s", wrong.Field, wrong.Value)
	} else if err != nil {
		return Report{}, err
	}
	return r, r.take(l)
}

// take sets the fields of the report's type.
func (r *Report) take(l line) error {
	switch r.Type {
	case Progress:
		r.Step, r.Message, r.Done, r.Total, r.Diff = l.Step, l.Message, l.Done, l.Total, l.Diff
		if l.Step == "" && l.Message == "" {
			return errors.New(`it has neither "step" nor "message"`)
		}
	case Result:
		r.Verdict, r.Changed, r.Message, r.Task = l.Verdict, l.Changed, l.Message, l.Task
		if !slices.Contains([]Verdict{OK, Failed, Waiting}, l.Verdict) {
			return fmt.Errorf(`its "verdict" is %.40q: write ok, failed or waiting`, l.Verdict)
		}
	case Requeue:
		r.After = l.After
	case Redact:
		r.Value = l.Value
	case Condition:
		if l.Remove {
			return r.encode(map[string]any{"conditions": []any{map[string]any{"type": l.ConditionType, "remove": true}}})
		}
		return r.encode(map[string]any{"conditions": []any{map[string]any{
			"type": l.ConditionType, "status": l.Status, "reason": l.Reason, "message": l.Message,
		}}})
	case Reference:
		if l.APIVersion == "" || l.Kind == "" || l.Name == "" {
			return errors.New(`it lacks "apiVersion", "kind" or "name" of the object`)
		}
		return r.encode(Object{l.APIVersion, l.Kind, l.Namespace, l.Name})
	case Status:
		return r.encode(map[string]any{"fields": l.Patch})
	case Event:
		body := map[string]any{"type": l.EventType, "reason": l.Reason, "message": l.Message}
		if l.EventType == "" {
			body["type"] = "Normal"
		}
		if l.Related != nil {
			body["related"] = l.Related
		}
		return r.encode(body)
	}
	return nil
}

func (r *Report) encode(body any) (err error) {
	r.Body, err = json.Marshal(body)
	return err
}
