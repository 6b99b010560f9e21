package runner

// Reason says in one word how a run ended. The words are stable: they stand in
// conditions, metrics and logs.
type Reason string

// The reasons of a run that took place.
const (
	// Succeeded: exit code 0, complete stats, no failure, no unreachable host.
	Succeeded Reason = "Succeeded"
	// TaskFailed: a task failed and nothing rescued it.
	TaskFailed Reason = "TaskFailed"
	// ItemFailed: one or more items of a loop failed.
	ItemFailed Reason = "ItemFailed"
	// HandlerFailed: a handler failed.
	HandlerFailed Reason = "HandlerFailed"
	// ConditionFailed: a task's failed_when was true.
	ConditionFailed Reason = "ConditionFailed"
	// UndefinedVariable: a task used a variable that is not defined.
	UndefinedVariable Reason = "UndefinedVariable"
	// Unreachable: a host could not be reached.
	Unreachable Reason = "Unreachable"
	// NoHostsMatched: no play found a host.
	NoHostsMatched Reason = "NoHostsMatched"
	// PlaybookInvalid: the content could not be parsed.
	PlaybookInvalid Reason = "PlaybookInvalid"
	// RoleNotFound: a role or playbook that is used does not exist.
	RoleNotFound Reason = "RoleNotFound"
	// VaultError: something could not be decrypted.
	VaultError Reason = "VaultError"
	// BadArguments: ansible-playbook refused its arguments.
	BadArguments Reason = "BadArguments"
	// RunnerDied: ansible-runner or ansible-playbook ended without a result.
	RunnerDied Reason = "RunnerDied"
	// ResultIncomplete: the exit code and the events do not add up to a proof.
	ResultIncomplete Reason = "ResultIncomplete"
	// PlaybookFailed: ansible-playbook failed without saying more.
	PlaybookFailed Reason = "PlaybookFailed"
)

// Verdict is the judgement on a run that took place.
type Verdict struct {
	// Success is true only when exit code and stats prove it.
	Success bool
	// Reason is the kind of end.
	Reason Reason
	// Message explains a failure: what, task, host, file:line. Its first line
	// is the task's own message. At most 1 KiB of valid UTF-8 without control
	// characters other than newline. Empty on success.
	Message string
}
