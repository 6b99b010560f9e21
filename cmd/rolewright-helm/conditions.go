package main

// The conditions of helm-operator. The last two exist only while something fails.
const (
	initialized    = "Initialized"
	deployed       = "Deployed"
	releaseFailed  = "ReleaseFailed"
	irreconcilable = "Irreconcilable"
)

// condition is a condition that the object should have or, if absent is true, not have.
type condition struct {
	kind, status, reason, message string
	absent                        bool
}

func absent(kind string) condition { return condition{kind: kind, absent: true} }

// conditions reports those conditions that the object does not have in this form.
func (h *handler) conditions(list ...condition) {
	has := map[string]map[string]any{}
	status, _ := h.in.Object.Object["status"].(map[string]any)
	items, _ := status["conditions"].([]any)
	for _, item := range items {
		if c, ok := item.(map[string]any); ok {
			if kind, ok := c["type"].(string); ok {
				has[kind] = c
			}
		}
	}
	for _, c := range list {
		c.message = clip(c.message, maxMessage)
		is, there := has[c.kind]
		switch {
		case c.absent && !there:
		case !c.absent && there && is["status"] == c.status && is["reason"] == c.reason && same(is["message"], c.message):
		default:
			h.reports.condition(c)
		}
	}
}

func same(is any, message string) bool {
	text, _ := is.(string)
	return text == message
}

// fail reports a failure as helm-operator does, and returns its error.
func (h *handler) fail(kind, reason string, err error) error {
	h.conditions(condition{kind: kind, status: "True", reason: reason, message: err.Error()})
	h.reports.event("Warning", reason, err.Error())
	return err
}
