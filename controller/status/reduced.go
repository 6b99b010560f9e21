package status

import (
	"reflect"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// Legacy returns before with the conditions of after, except for our conditions that ansible-operator does not have. It
// keeps no record of runs that after does not confirm.
func Legacy(before, after map[string]any) map[string]any {
	out := clone(before)
	dropOutdated(out, after)
	var list []any
	items, _ := clone(after)["conditions"].([]any)
	for _, item := range items {
		cond, _ := item.(map[string]any)
		switch cond["type"] {
		case Ready, Reconciling, Stalled, Drifted, Looping:
			if ours(cond) {
				continue
			}
		}
		list = append(list, item)
	}
	if len(list) > 0 {
		out["conditions"] = list
	}
	return out
}

// Minimal returns before with the conditions of after, whose messages it cuts, for an
// object that has no room for more. before is the status that was read, after the one
// that did not fit. Like [Legacy], it keeps no record of runs that after does not confirm.
func Minimal(before, after map[string]any) map[string]any {
	out := clone(before)
	dropOutdated(out, after)
	if generation, there := after["observedGeneration"]; there {
		out["observedGeneration"] = generation
	}
	list, _ := clone(after)["conditions"].([]any)
	const room = 120 // bytes of a message, enough for a task's name
	for _, item := range list {
		if cond, ok := item.(map[string]any); ok && isOurType(cond) {
			if m := text(cond["message"]); len(m) > room {
				cond["message"] = plaintext.Cut(m, room)
			}
		}
	}
	out["conditions"] = list
	return out
}

// dropOutdated removes the record of runs from st unless it is the same in after. Otherwise a restarted operator would take
// an earlier run for the last one, and not repeat a later one that failed or was cut short.
func dropOutdated(st, after map[string]any) {
	ansible, next := mapAt(st, "ansible"), mapAt(after, "ansible")
	same := func(part string) bool { return reflect.DeepEqual(ansible[part], next[part]) }
	if !same(partActive) || !same(partLast) {
		delete(ansible, partLast)
		delete(ansible, nextRetry)
	}
	if !same(partActive) {
		delete(ansible, partActive)
	}
}
