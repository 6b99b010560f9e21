package status

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// Wish is what a role wants to change in the status of its object.
type Wish struct {
	// Fields are merged into the status: maps are merged, null removes a field,
	// and any other value replaces it.
	Fields map[string]any
	// Conditions are added; each replaces the condition of its type.
	Conditions []Condition
}

// Condition is a condition that a role writes.
type Condition struct {
	Type, Status, Reason, Message string
	// Remove removes the condition of the type; all other fields are empty then.
	Remove bool
}

// Limits of a wish. The forms below are those of metav1.Condition.
const (
	maxConditions = 20
	maxMessage    = 4096
	maxDepth      = 20
)

var (
	typeForm            = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	conditionReasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)
)

// Check returns an error about what is wrong with a wish. managed is true if the operator
// writes the status: then the role must not write the operator's conditions and summary.
func (w Wish) Check(managed bool) error {
	if _, there := w.Fields["conditions"]; there {
		return errors.New("fields.conditions: set conditions with the argument conditions, which keeps the conditions of other clients")
	}
	for _, field := range []string{"ansible", "observedGeneration"} {
		if _, there := w.Fields[field]; there && managed {
			return fmt.Errorf("fields.%s: the operator writes status.%s; choose another name, or set manageStatus: false in the watch", field, field)
		}
	}
	if !shallow(w.Fields, maxDepth) {
		return fmt.Errorf("fields: more than %d levels are nested", maxDepth)
	}
	if len(w.Conditions) > maxConditions {
		return fmt.Errorf("conditions: there are %d, and at most %d are written at a time", len(w.Conditions), maxConditions)
	}
	seen := map[string]bool{}
	for i, c := range w.Conditions {
		if err := c.check(managed); err != nil {
			return fmt.Errorf("conditions[%d].%w", i, err)
		}
		if seen[c.Type] {
			return fmt.Errorf("conditions[%d].type: %s is there twice", i, c.Type)
		}
		seen[c.Type] = true
	}
	return nil
}

func (c Condition) check(managed bool) error {
	owned := []string{Running, Successful, Failure, Ready, Reconciling, Stalled}
	switch {
	case !typeForm.MatchString(c.Type):
		return fmt.Errorf("type: %.80q is not the type of a condition, as DatabaseReady is", c.Type)
	case managed && slices.Contains(owned, c.Type):
		return fmt.Errorf("type: the operator writes the condition %s; choose another type, or set manageStatus: false in the watch", c.Type)
	case c.Remove && c.Status+c.Reason+c.Message != "":
		return errors.New("remove: a condition to remove takes no status, reason or message")
	case c.Remove:
	case !slices.Contains([]string{"True", "False", "Unknown"}, c.Status):
		return fmt.Errorf("status: %.80q is not True, False or Unknown, in quotes in YAML", c.Status)
	case !conditionReasonForm.MatchString(c.Reason):
		return fmt.Errorf("reason: %.80q is not one word in CamelCase, as BackupFailed is", c.Reason)
	case len(c.Message) > maxMessage:
		return fmt.Errorf("message: it is longer than %d bytes", maxMessage)
	}
	return nil
}

// shallow reports whether a value is nested at most levels deep.
func shallow(v any, levels int) bool {
	if levels < 0 {
		return false
	}
	switch t := v.(type) {
	case map[string]any:
		for _, v := range t {
			if !shallow(v, levels-1) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(t, func(v any) bool { return !shallow(v, levels-1) })
	}
	return true
}

// Merge returns the status of an object of this generation with the wish fulfilled. What
// the wish does not name stays as it is.
func (w Wish) Merge(st map[string]any, generation int64, now time.Time) map[string]any {
	out := merged(clone(st), clone(w.Fields))
	c := readConditions(out, generation, now)
	for _, wished := range w.Conditions {
		c.wish(wished)
	}
	c.write(out)
	return out
}

func merged(into, fields map[string]any) map[string]any {
	for key, v := range fields {
		m, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(into, key)
		case isMap:
			is, _ := into[key].(map[string]any)
			if is == nil {
				is = map[string]any{}
			}
			into[key] = merged(is, m)
		default:
			into[key] = v
		}
	}
	return into
}

// wish adds, replaces or removes a condition as the role wants. A condition that says the same already stays as it is.
func (c *conditions) wish(w Condition) {
	next := map[string]any{}
	i, old := c.find(w.Type)
	if w.Remove {
		if i >= 0 {
			c.list = slices.Delete(slices.Clone(c.list), i, i+1)
		}
		return
	}
	if i >= 0 {
		next = maps.Clone(old)
	}
	maps.Copy(next, map[string]any{
		"type": w.Type, "status": w.Status, "reason": w.Reason, "message": w.Message, "observedGeneration": c.generation,
	})
	if old["status"] != w.Status || old["lastTransitionTime"] == nil {
		next["lastTransitionTime"] = c.now
	}
	switch {
	case i < 0:
		c.list = append(c.list, next)
	case !reflect.DeepEqual(old, next):
		c.list = slices.Clone(c.list)
		c.list[i] = next
	}
}
