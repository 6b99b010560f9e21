package status

// Drifted is the condition of an object whose last run was a check.
const Drifted = "Drifted"

// ModeCheck is [Run.Mode] of a run that changes nothing.
const ModeCheck = "check"

// Reasons of the conditions that a check sets.
const (
	reasonDrift   = "ChangesFound"
	reasonNoDrift = "NoChanges"
	reasonChecked = "CheckMode"
)

// MaxDrift is how long the text of [Run.Drift] is at most, in bytes.
const MaxDrift = 2 << 10

const (
	messageNoDrift = "A run would change nothing"
	messageChecked = "Runs are checks: nothing is applied"
)

// concludeCheck leaves the conditions as the last run left them that was applied, and
// says what such a run would change.
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

// remove takes one of the added conditions away that says nothing any more.
func (c *conditions) remove(kind string) {
	if i, old := c.find(kind); i >= 0 && ours(old) {
		c.list = append(append([]any(nil), c.list[:i]...), c.list[i+1:]...)
	}
}
