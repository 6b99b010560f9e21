package status

import (
	"cmp"
	"strings"
	"time"
)

// Condition types. The first three are ansible-operator's, with its statuses,
// reasons and messages; the next three follow kstatus.
const (
	Running    = "Running"
	Successful = "Successful"
	Failure    = "Failure"

	Ready       = "Ready"
	Reconciling = "Reconciling"
	Stalled     = "Stalled"

	// Looping is the condition of an object that runs again and again because others
	// change what its runs do.
	Looping = "Looping"
)

// Texts that users and tools of ansible-operator search for.
const (
	messageRunning   = "Running reconciliation"
	messageAwaiting  = "Awaiting next reconciliation"
	messageSucceeded = "Last reconciliation succeeded"
	messageFailed    = "Last reconciliation failed"

	reasonRunning    = "Running"
	reasonSuccessful = "Successful"
	reasonFailed     = "Failed"
)

// Reasons of the added conditions that do not come from a verdict.
const (
	reasonInProgress  = "RunInProgress"
	reasonRetrying    = "RetryScheduled"
	reasonDeleting    = "FinalizerRun"
	reasonInterrupted = "RunInterrupted"
	reasonSettled     = "RunSucceeded"
	reasonRunFailed   = "RunFailed"
	reasonPaused      = "Paused"
	reasonWindow      = "MaintenanceWindow"
	reasonWaiting     = "Waiting"
	reasonNoFinalizer = "FinalizerRefused"
)

// conditions is status.conditions. An element that was read may be anything; those
// that are not our conditions stay as they are.
type conditions struct {
	list       []any
	generation int64
	now        string
}

func readConditions(st map[string]any, generation int64, now time.Time) *conditions {
	list, _ := st["conditions"].([]any)
	return &conditions{list: list, generation: generation, now: now.UTC().Format(time.RFC3339)}
}

func (c *conditions) find(kind string) (int, map[string]any) {
	for i, item := range c.list {
		if cond, ok := item.(map[string]any); ok && cond["type"] == kind {
			return i, cond
		}
	}
	return -1, nil
}

// set sets one of ansible-operator's conditions by ansible-operator's rule: if status
// and reason are the same, nothing changes, unless always is true. Otherwise the
// condition is replaced and moves to the end; it keeps its transition time if its
// status is the same.
func (c *conditions) set(kind, value, reason, message string, result map[string]any, always bool) {
	i, old := c.find(kind)
	if i >= 0 && !always && old["status"] == value && old["reason"] == reason {
		return
	}
	next := map[string]any{
		"type": kind, "status": value, "reason": reason, "message": message,
		"lastTransitionTime": c.now,
	}
	if result != nil {
		next["ansibleResult"] = result
	}
	if i >= 0 {
		if t, ok := old["lastTransitionTime"]; ok && old["status"] == value {
			next["lastTransitionTime"] = t
		}
		c.list = append(c.list[:i:i], c.list[i+1:]...)
	}
	c.list = append(c.list, next)
}

// add sets one of the added conditions, in place. If another client writes a condition
// of that type, it does nothing.
func (c *conditions) add(kind, value, reason, message string) {
	next := map[string]any{
		"type": kind, "status": value, "reason": reason, "message": message,
		"lastTransitionTime": c.now, "observedGeneration": c.generation,
	}
	i, old := c.find(kind)
	if i < 0 {
		c.list = append(c.list, next)
		return
	}
	if !ours(old) {
		return
	}
	if t, ok := old["lastTransitionTime"]; ok && old["status"] == value {
		next["lastTransitionTime"] = t
	}
	list := append([]any(nil), c.list...)
	list[i] = next
	c.list = list
}

// ours reports whether this package wrote a Ready, Reconciling, Stalled, Drifted or Looping
// condition. It judges by the reason, the only mark that every CRD schema keeps.
func ours(cond map[string]any) bool {
	reason, _ := cond["reason"].(string)
	switch reason {
	case reasonInProgress, reasonRetrying, reasonDeleting, reasonInterrupted, reasonSettled, reasonRunFailed, reasonPaused, reasonWindow, reasonWaiting, reasonNoFinalizer,
		ReasonExhausted, ReasonLoop, reasonDrift, reasonNoDrift, reasonChecked:
		return true
	}
	return verdictReasons()[reason]
}

// verdictReasons returns the reasons that a Ready or Stalled condition takes from a
// run: those of runner.Reason, which this leaf does not import, and those of runs
// without a verdict.
func verdictReasons() map[string]bool {
	return map[string]bool{
		"TaskFailed": true, "ItemFailed": true, "HandlerFailed": true, "ConditionFailed": true,
		"ArgumentSpecNotMet": true, "UndefinedVariable": true, "Unreachable": true, "NoHostsMatched": true, "PlaybookInvalid": true,
		"RoleNotFound": true, "VaultError": true, "BadArguments": true, "RunnerDied": true,
		"ResultIncomplete": true, "PlaybookFailed": true, ReasonUnavailable: true, ReasonNotRun: true, ReasonReferenceNotFound: true,
		ReasonTimedOut: true, "NoSpace": true, ReasonArtifactsTooLarge: true,
		"CommandFailed": true, "CommandNotRunnable": true, "InputRefused": true, "ProtocolError": true, "ContradictoryResult": true, "LeftProcesses": true,
		ReasonOutOfMemory: true, ReasonNoMemory: true, ReasonTooManyProcesses: true, ReasonCancelled: true, ReasonHookFailed: true,
	}
}

// generationOf returns the generation that our condition ready is about. If the schema drops it from
// conditions, it is the observed generation of the status.
func generationOf(ready, st map[string]any) int64 {
	return cmp.Or(integer(ready["observedGeneration"]), integer(st["observedGeneration"]))
}

func isOurType(cond map[string]any) bool {
	switch cond["type"] {
	case Running, Successful, Failure:
		return true
	case Ready, Reconciling, Stalled, Drifted, Looping:
		return ours(cond)
	}
	return false
}

// IsOwn reports whether a status has only what this package writes.
func IsOwn(st map[string]any) bool {
	met := map[any]bool{}
	list, isList := st["conditions"].([]any)
	if !isList && st["conditions"] != nil {
		return false
	}
	for _, item := range list {
		cond, _ := item.(map[string]any)
		if !isOurType(cond) || met[cond["type"]] {
			return false
		}
		met[cond["type"]] = true
	}
	for field := range st {
		if field != "ansible" && field != "observedGeneration" && field != "conditions" {
			return false
		}
	}
	return true
}

func (c *conditions) write(st map[string]any) {
	if c.list != nil {
		st["conditions"] = c.list
	}
}

// held returns what a status says about a held run, or an object that cannot get its finalizer; nil if it says neither.
func held(st map[string]any) *Held {
	_, c := readConditions(st, 0, time.Time{}).find(Reconciling)
	if c["status"] != "True" || c["reason"] != reasonPaused && c["reason"] != reasonWindow && c["reason"] != reasonNoFinalizer {
		return nil
	}
	cause, says, _ := strings.Cut(text(c["message"]), ": ")
	opens, inWindow := strings.CutPrefix(says, opensAt)
	until, err := time.Parse(time.RFC3339, opens)
	switch h := (&Held{Cause: cause, Generation: max(integer(c["observedGeneration"]), 0)}); {
	case !causeForm.MatchString(cause):
	case c["reason"] == reasonPaused && says == isPaused:
		return h
	case c["reason"] == reasonWindow && inWindow && err == nil:
		h.Until = until.Unix()
		return h
	}
	return &Held{}
}

// ended returns how the last run ended, by ansible-operator's condition Running, and its
// generation, by our condition Ready; 0 if that does not say it. ansible-operator leaves
// the reason Running after a failure.
func ended(st map[string]any) (result Result, generation int64) {
	c := readConditions(st, 0, time.Time{})
	_, running := c.find(Running)
	switch {
	case running == nil:
		return "", 0
	case running["reason"] == reasonSuccessful:
		result = Succeeded
	case running["status"] == "False" && (running["reason"] == reasonFailed || running["reason"] == reasonRunning):
		result = Failed
	default:
		return "", 0
	}
	if _, ready := c.find(Ready); ready != nil && ours(ready) {
		generation = max(generationOf(ready, st), 0)
	}
	return result, generation
}

// ranSince reports whether ansible-operator has run the object after last, or was stopped in such a run: it writes its
// conditions, and keeps the rest of the status.
func ranSince(st map[string]any, last Run) bool {
	const clocks = time.Minute // two machines may differ by this
	c := readConditions(st, 0, time.Time{})
	for _, kind := range []string{Running, Failure} {
		_, cond := c.find(kind)
		completion := text(mapAt(cond, "ansibleResult")["completion"])
		t, ok := readTime(completion)
		if !ok {
			t, ok = readTime(completion + "Z") // old versions write no zone
		}
		if ok && t.After(last.Finished.Add(clocks)) {
			return true
		}
	}
	_, running := c.find(Running)
	// Our own runs leave Running like this if the object is not yet as wanted; a later check keeps that.
	return running["status"] == "True" && running["reason"] == reasonRunning && !last.NotYet() && last.Mode != ModeCheck
}

// IsStalled reports whether the status of an object says that a failed run is not repeated.
func IsStalled(object map[string]any) bool {
	_, c := readConditions(mapAt(object, "status"), 0, time.Time{}).find(Stalled)
	return c["status"] == "True"
}
