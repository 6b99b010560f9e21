package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

func TestWish_Check(t *testing.T) {
	condition := Condition{Type: "DatabaseReady", Status: "True", Reason: "Reachable"}
	with := func(edit func(*Condition)) Wish {
		c := condition
		edit(&c)
		return Wish{Conditions: []Condition{c}}
	}
	deep := map[string]any{}
	for range maxDepth + 1 {
		deep = map[string]any{"a": []any{deep}}
	}
	for name, tt := range map[string]struct {
		wish     Wish
		managed  string // the error if the operator writes the status
		ofTheRun string // the error if the role does
	}{
		"good":               {Wish{Fields: map[string]any{"a": int64(1)}, Conditions: []Condition{condition}}, "", ""},
		"domain":             {with(func(c *Condition) { c.Type = "example.com/Ready" }), "", ""},
		"the summary":        {Wish{Fields: map[string]any{"ansible": nil}}, "fields.ansible: the operator writes", ""},
		"the generation":     {Wish{Fields: map[string]any{"observedGeneration": int64(1)}}, "fields.observedGeneration: the operator writes", ""},
		"conditions":         {Wish{Fields: map[string]any{"conditions": []any{}}}, "fields.conditions: set", "fields.conditions: set"},
		"nested":             {Wish{Fields: deep}, "levels are nested", "levels are nested"},
		"Ready":              {with(func(c *Condition) { c.Type = Ready }), "the operator writes the condition Ready", ""},
		"Failure":            {with(func(c *Condition) { c.Type = Failure }), "the operator writes the condition Failure", ""},
		"no type":            {with(func(c *Condition) { c.Type = "" }), "conditions[0].type:", "conditions[0].type:"},
		"status":             {with(func(c *Condition) { c.Status = "true" }), "conditions[0].status:", "conditions[0].status:"},
		"reason":             {with(func(c *Condition) { c.Reason = "not one" }), "conditions[0].reason:", "conditions[0].reason:"},
		"message":            {with(func(c *Condition) { c.Message = strings.Repeat("a", maxMessage+1) }), "longer than 4096", "longer than 4096"},
		"removed":            {Wish{Conditions: []Condition{{Type: "Disk", Remove: true}}}, "", ""},
		"Ready removed":      {Wish{Conditions: []Condition{{Type: Ready, Remove: true}}}, "the operator writes the condition Ready", ""},
		"removed and there":  {with(func(c *Condition) { c.Remove = true }), "remove: a condition to remove", "remove: a condition to remove"},
		"twice":              {Wish{Conditions: []Condition{condition, condition}}, "conditions[1].type: DatabaseReady is there twice", "is there twice"},
		"too many to write":  {Wish{Conditions: make([]Condition, maxConditions+1)}, "at most 20", "at most 20"},
		"nothing is no harm": {Wish{}, "", ""},
	} {
		for managed, want := range map[bool]string{true: tt.managed, false: tt.ofTheRun} {
			err := tt.wish.Check(managed)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, managed %t: %v; want %q", name, managed, err, want)
			}
		}
	}
}

// A role's request changes only what it names.
func TestWish_Merge(t *testing.T) {
	st := Conclude(nil, success(7), 0, at(2))
	st["theirs"] = map[string]any{"kept": "a", "gone": "b", "list": []any{"x"}}
	foreign := map[string]any{"type": "Backup", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z", "lastHeartbeatTime": "x"}
	st["conditions"] = append(st["conditions"].([]any), foreign, "odd")
	before := clone(st)
	wish := Wish{
		Fields: map[string]any{"theirs": map[string]any{"gone": nil, "list": []any{"y"}, "new": map[string]any{"n": int64(1)}}},
		Conditions: []Condition{
			{Type: "Backup", Status: "True", Reason: "Done", Message: "again"}, {Type: "Disk", Status: "False", Reason: "Full", Message: "no room"},
		},
	}
	got := wish.Merge(st, 8, at(3))
	if diff := cmp.Diff(before, st); diff != "" {
		t.Errorf("the status that was read has changed:\n%s", diff)
	}
	want := clone(before)
	want["theirs"] = map[string]any{"kept": "a", "list": []any{"y"}, "new": map[string]any{"n": int64(1)}}
	list := want["conditions"].([]any)
	changed := list[len(list)-2].(map[string]any)
	changed["message"], changed["observedGeneration"] = "again", int64(8)
	want["conditions"] = append(list, map[string]any{
		"type": "Disk", "status": "False", "reason": "Full", "message": "no room", "lastTransitionTime": "2026-01-02T03:04:03Z", "observedGeneration": int64(8),
	})
	must.Be(t, "status", want, got)
	if diff := cmp.Diff(got, wish.Merge(got, 8, at(4))); diff != "" {
		t.Errorf("the same again changes:\n%s", diff)
	}
	without := Wish{Conditions: []Condition{{Type: "Disk", Remove: true}, {Type: "Absent", Remove: true}}}
	want["conditions"] = list
	must.Be(t, "status without a condition", want, without.Merge(got, 8, at(5)))
	alone := map[string]any{"conditions": []any{map[string]any{"type": "Disk"}}}
	if got := without.Merge(alone, 8, at(5)); len(got["conditions"].([]any)) != 0 {
		t.Errorf("the last condition stays: %v", got)
	}
}
