package watches

import "context"

// Hooks is Go code around the runs of a watch; fields that are nil do nothing. None may change
// the object, which it gets as a copy.
type Hooks struct {
	// Vars returns further extra vars of a run.
	Vars func(ctx context.Context, object map[string]any) (map[string]any, error)
	// Before is called before a run starts, which an error prevents.
	Before func(ctx context.Context, object map[string]any) error
	// After is called after a run has ended that Before has let start; an error is a failure of
	// the run.
	After func(ctx context.Context, object map[string]any, end HookEnd) error
}

// HookEnd is how a run has ended.
type HookEnd struct {
	Run, Result, Reason, Message string
}

// setHandler reads the name of a handler.
func setHandler[T any](of func(*T) *string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		name, ok := c.string(a)
		if ok && name == "" {
			c.error(a, "the handler has no name", "write the name by which the program knows it, such as handler: tickets")
		}
		*of(into) = name
	}
}

// checkHandlerWatch refuses what says how Ansible or a command runs where Go code does.
func (c *decoding) checkHandlerWatch(e *entry) {
	const ofHandler = "has no meaning in a watch with a handler"
	c.without(ofHandler, e.mapping, "playbook", "role", "command", "check", "inheritEnv", "env", "secrets", "stop", "requireResult", "vars", "varsFrom", "snakeCaseParameters", "markUnsafe", "allowReservedVariables", "executor", "job")
	e.watch.Executor = ExecutorRunner // no interpreter of Ansible's is needed
	if e.finalizer != nil {
		c.without(ofHandler, e.finalizer.mapping, "playbook", "role", "command", "vars")
	}
}
