package status

// Drifted is the condition of an object whose last run was a check.
const Drifted = "Drifted"

// ModeCheck is the [Run.Mode] of a run that changes nothing.
const ModeCheck = "check"

// Reasons of the conditions that a check sets.
const (
	reasonDrift   = "ChangesFound"
	reasonNoDrift = "NoChanges"
	reasonChecked = "CheckMode"
)

// MaxDrift is the largest length of [Run.Drift], in bytes.
const MaxDrift = 2 << 10

const (
	messageNoDrift = "A run would change nothing"
	messageChecked = "Runs are checks: nothing is applied"
)

// concludeCheck keeps the conditions of the last applying run, and adds what an applying
// run would change now.
func concludeCheck(c *conditions, r Run) {
	switch {
	case r.Result == Interrupted:
		return
	case r.Result == Failed:
		c.add(Drifted, "Unknown", r.Reason, r.Message)
	case r.Drifted:
		c.add(Drifted, "True", reasonDrift, r.Drift)
	default:
		c.add(Drifted, "False", reasonNoDrift, messageNoDrift)
	}
	if _, ready := c.find(Ready); ready == nil {
		c.add(Ready, "Unknown", reasonChecked, messageChecked)
	}
	if _, is := c.find(Reconciling); is == nil || is["status"] != "False" {
		c.add(Reconciling, "False", reasonChecked, messageChecked)
	}
}

// remove removes one of the added conditions, if this package wrote it.
func (c *conditions) remove(kind string) {
	if i, old := c.find(kind); i >= 0 && ours(old) {
		c.list = append(append([]any(nil), c.list[:i]...), c.list[i+1:]...)
	}
}
