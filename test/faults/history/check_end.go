package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// final is an object in its state at the end.
type final struct {
	stored

	status Status
}

func (e *End) finals() []final {
	var found []final
	for _, data := range e.Objects {
		var f final
		if json.Unmarshal(data, &f.stored) == nil {
			_ = json.Unmarshal(f.Status, &f.status) // see loader.version
			found = append(found, f)
		}
	}
	return found
}

// String formats the object as evidence.
func (f final) String() string {
	last := "none"
	if l := f.status.Ansible.LastRun; l != nil {
		last = fmt.Sprintf("%s %s/%s of generation %d", l.ID, l.Result, l.Reason, l.Generation)
	}
	return fmt.Sprintf("[end] %s, uid %s: generation %d, observedGeneration %d, value %q, last run %s",
		f.Metadata.Name, f.Metadata.UID, f.Metadata.Generation, f.status.ObservedGeneration, valueText(f.Spec.Value), last)
}

// stable is I8: once the faults are over, the newest generation gets recorded.
func (c *checker) stable() {
	for _, e := range c.h.events("unstable") {
		c.add("I8", "", "", "the objects did not come to rest after the faults were over", e.Detail)
	}
	end := c.h.End
	if end == nil {
		return
	}
	if end.Stable != nil && !*end.Stable && len(c.h.events("unstable")) == 0 {
		c.add("I8", "", "", "the objects did not come to rest after the faults were over")
	}
	present := map[string]bool{}
	for _, f := range end.finals() {
		present[f.Metadata.Name] = true
		want := end.Want[f.Metadata.Name]
		switch last, uid := f.status.Ansible.LastRun, f.Metadata.UID; {
		case want.Deleted:
			c.add("I8", uid, "", "the object was to be deleted and is still there", f)
		case last == nil:
			c.add("I8", uid, "", "the object has no record of a run", f)
		case f.status.Ansible.ActiveRun != nil:
			c.add("I8", uid, f.status.Ansible.ActiveRun.ID, "the status says that a run is in progress, and nothing happens", f)
		case f.status.ObservedGeneration != f.Metadata.Generation:
			c.add("I8", uid, "", "the newest generation is not recorded", f)
		case last.Result == interrupted:
			c.add("I8", uid, last.ID, "an interrupted run was not repeated", f)
		case c.askedAgain(last.ID) && f.Metadata.DeletionTimestamp == nil:
			c.add("I8", uid, last.ID, "the last run has asked for another one soon", f, c.h.runs[last.ID])
		case want.Result != "" && want.Result != last.Result:
			c.add("I8", uid, last.ID, "the last run is recorded as "+last.Result+", not as "+want.Result, f)
		}
	}
	for name, want := range end.Want {
		if !want.Deleted && !present[name] {
			c.add("I8", "", "", "the object "+name+" was to be there and is gone")
		}
	}
}

// askedAgain tells whether a run has asked for another one by requeue_after.
func (c *checker) askedAgain(id string) bool {
	r := c.h.runs[id]
	return r != nil && r.End != nil && r.Proved() && r.End.RequeueAfter != ""
}

// level is I9: what the runs have left behind follows from the last spec.
func (c *checker) level() {
	if c.h.End == nil || len(c.h.events("unstable")) > 0 {
		return
	}
	finals := c.h.End.finals()
	byName := map[string]final{}
	for _, f := range finals {
		byName[f.Metadata.Name] = f
		if want, ok := c.h.End.Want[f.Metadata.Name]; ok && !want.Deleted && want.Value != "" && want.Value != valueText(f.Spec.Value) {
			c.add("I9", f.Metadata.UID, "", fmt.Sprintf("the object has value %q, and %q was asked for last", valueText(f.Spec.Value), want.Value), f)
		}
	}
	owned := map[string]bool{}
	for _, d := range c.h.End.Owned {
		name := d.Metadata.Name
		owned[name] = true
		f, ok := byName[name]
		switch {
		case strings.HasSuffix(name, "-final"):
		case !ok && c.h.End.Want[name].Deleted && d.Metadata.DeletionTimestamp == nil:
			c.add("I9", "", "", "the dependent "+name+" is left of an object that is gone")
		case ok && f.settled() && d.Data["spec"] != valueText(f.Spec.Value):
			c.add("I9", f.Metadata.UID, "", fmt.Sprintf("the dependent says %q", d.Data["spec"]), f)
		}
		if ok {
			c.ownedBy(d, f)
		}
	}
	for name, f := range byName {
		if f.settled() && len(c.h.End.Owned) > 0 && !owned[name] && c.hasTruth() {
			c.add("I9", f.Metadata.UID, "", "the dependent is missing", f)
		}
	}
	c.asReference()
}

// settled tells whether the last run has succeeded for the object's current generation.
func (f final) settled() bool {
	last := f.status.Ansible.LastRun
	return last != nil && last.Result == succeeded && f.status.ObservedGeneration == f.Metadata.Generation && f.Metadata.DeletionTimestamp == nil
}

// ownedBy is I10, as far as the end shows it.
func (c *checker) ownedBy(d Dependent, f final) {
	if len(d.Metadata.OwnerReferences) == 1 && d.Metadata.OwnerReferences[0].UID == f.Metadata.UID {
		return
	}
	c.add("I10", f.Metadata.UID, "", fmt.Sprintf("the dependent %s is owned by %v", d.Metadata.Name, d.Metadata.OwnerReferences), f)
}

// asReference compares the end with that of the same workload without faults, leaving out
// what depends on the time or the object.
func (c *checker) asReference() {
	if c.h.Reference == nil {
		return
	}
	got, want := c.h.End.masked(), c.h.Reference.masked()
	if !slices.Equal(got, want) {
		c.add("I9", "", "", "the end differs from that without faults", "without: "+strings.Join(want, "; "), "with: "+strings.Join(got, "; "))
	}
}

// masked returns an end without times, identifiers and generations.
func (e *End) masked() []string {
	var lines []string
	for _, f := range e.finals() {
		var conditions []string
		for _, c := range f.status.Conditions {
			conditions = append(conditions, c.Type+"="+c.Status+"/"+c.Reason)
		}
		slices.Sort(conditions)
		result := ""
		if f.status.Ansible.LastRun != nil {
			result = f.status.Ansible.LastRun.Result
		}
		slices.Sort(f.Metadata.Finalizers)
		lines = append(lines, fmt.Sprintf("%s value=%q result=%s current=%t deleting=%t finalizers=%v %s", f.Metadata.Name, valueText(f.Spec.Value), result,
			f.status.ObservedGeneration == f.Metadata.Generation, f.Metadata.DeletionTimestamp != nil, f.Metadata.Finalizers, strings.Join(conditions, ",")))
	}
	for _, d := range e.Owned {
		lines = append(lines, fmt.Sprintf("dependent %s spec=%q", d.Metadata.Name, d.Data["spec"]))
	}
	slices.Sort(lines)
	return lines
}
