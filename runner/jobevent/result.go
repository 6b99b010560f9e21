package jobevent

import (
	"bytes"
	"encoding/json"
	"strings"
)

const (
	// unknownFailure is the message if the result has none; users of
	// ansible-operator know these words.
	unknownFailure = "unknown playbook failure"
	hiddenDetail   = "the output is hidden because of no_log"
	droppedDetail  = "the result was dropped because of its size"

	// maxItems is the largest number of loop items that are described.
	maxItems = 5
)

// failedItems are the items of one loop on one host that failed.
type failedItems struct {
	described []string
	count     int
}

// add adds an item's result. It only counts a hidden one.
func (i *failedItems) add(res json.RawMessage) {
	i.count++
	if len(i.described) == maxItems {
		return
	}
	r := readResult(res)
	if r.noLog || r.label == nil {
		return
	}
	text := rendered(r.label)
	if message := rendered(r.msg); message != "" {
		text += ": " + message
	}
	i.described = append(i.described, line(text, maxItem))
}

// result has the members of a task's result that are read; raw JSON is nil if absent.
type result struct {
	msg, reason, label, results    json.RawMessage
	stderr, stdout, exception      json.RawMessage
	moduleStderr, moduleStdout     json.RawMessage
	noLog, failedWhen, failed      bool
	changed, unreachable, anything bool
	parked                         bool
	period                         json.RawMessage
}

func readResult(res json.RawMessage) result {
	var r result
	members := map[string]*json.RawMessage{
		"msg": &r.msg, "reason": &r.reason, "results": &r.results, "period": &r.period,
		"stderr": &r.stderr, "stdout": &r.stdout, "exception": &r.exception,
		"module_stderr": &r.moduleStderr, "module_stdout": &r.moduleStdout,
	}
	fields(res, func(key string, value []byte) {
		r.anything = true
		switch key {
		case "censored":
			r.noLog = true
		case "failed_when_result":
			r.failedWhen = asBool(value)
		case "failed":
			r.failed = asBool(value)
		case "changed":
			r.changed = asBool(value)
		case "unreachable":
			r.unreachable = asBool(value)
		case "parked":
			r.parked = asBool(value)
		case "item":
			if r.label == nil {
				r.label = value
			}
		case "_ansible_item_label":
			r.label = value
		default:
			if member, ok := members[key]; ok {
				*member = value
			}
		}
	})
	return r
}

func changed(res json.RawMessage) bool { return readResult(res).changed }

// Changed tells whether the event's result says that something was changed.
func (e Event) Changed() bool { return changed(e.Data.Res) }

// describe returns what a result says about its failure. items are the failed
// items whose own events were seen; if there are none, the result's list is used.
func describe(res json.RawMessage, items failedItems) Failure {
	r := readResult(res)
	if items.count == 0 {
		elements(r.results, func(item []byte) {
			if i := readResult(item); i.failed || i.unreachable || i.noLog {
				items.add(item)
			}
		})
	}
	f := Failure{
		Items:       items.described,
		ItemsFailed: items.count,
		FailedWhen:  r.failedWhen,
	}
	switch {
	case r.noLog:
		// The rest of the result must not be shown.
		f.Message, f.Detail, f.Items = unknownFailure, hiddenDetail, nil
		return f
	case !r.anything:
		f.Message, f.Detail = unknownFailure, droppedDetail
		return f
	}
	f.Message, f.Detail = lines(rendered(r.msg), maxMessage), r.detail()
	if f.Message == "" {
		f.Message, f.Detail = f.Detail, ""
	}
	if f.Message == "" {
		f.Message = unknownFailure
	}
	if f.Detail == f.Message {
		f.Detail = ""
	}
	return f
}

// detail returns the most informative line apart from the msg; empty if there is none.
func (r result) detail() string {
	for _, text := range []json.RawMessage{r.stderr, r.moduleStderr, r.stdout, r.moduleStdout, r.exception, r.reason} {
		if s := lastLine(rendered(text), maxDetail); s != "" {
			return s
		}
	}
	return ""
}

// rendered returns a JSON value as text: a string unchanged, the elements of a
// list joined, nothing for null, and compact JSON for everything else.
func rendered(value json.RawMessage) string {
	switch {
	case len(value) == 0 || isNull(value):
		return ""
	case value[0] == '"':
		return asString(value)
	case value[0] != '[':
		return compact(value)
	}
	var parts []string
	elements(value, func(element []byte) {
		if element[0] == '"' {
			parts = append(parts, asString(element))
			return
		}
		parts = append(parts, compact(element))
	})
	return strings.Join(parts, "; ")
}

func compact(value []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return ""
	}
	return b.String()
}

// isRequeueAfter tells whether an action is a module that asks for the next run.
func isRequeueAfter(action string) bool {
	switch action {
	case "requeue_after", "operator_sdk.util.requeue_after", "rolewright.operator.requeue_after":
		return true
	}
	return false
}

// RequeuesAfter tells whether the event belongs to a module that asks for the next run.
func (e Event) RequeuesAfter() bool {
	return isRequeueAfter(e.Data.ResolvedAction) || isRequeueAfter(e.Data.TaskAction)
}

// parks tells whether a result of the module rolewright.operator.wait_for says that the operator is to go on waiting
// after the run.
func parks(d Data) bool {
	const action = "rolewright.operator.wait_for"
	if d.ResolvedAction != action && d.TaskAction != action {
		return false
	}
	r := readResult(d.Res)
	elements(r.results, func(item []byte) { r.parked = r.parked || readResult(item).parked })
	return r.parked
}

// requeuePeriod returns the period that the module returned, as text, and whether
// there is one. For a loop it is that of the last item.
func requeuePeriod(res json.RawMessage) (string, bool) {
	r := readResult(res)
	elements(r.results, func(item []byte) {
		if period := readResult(item).period; period != nil {
			r.period = period
		}
	})
	return line(rendered(r.period), maxName), r.period != nil
}
