package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// host is the host that the play runs on.
const host = "localhost"

// event writes a job event as ansible-runner does: atomically, in a file of its own.
func (p *play) event(kind string, data map[string]any) error {
	if p.reports != nil {
		return p.report(kind, data)
	}
	p.events++
	if _, forged := data["playbook_uuid"]; !forged {
		data["playbook_uuid"] = "11111111-2222-3333-4444-" + (p.ident + "000000000000")[:12]
	}
	text, err := json.Marshal(map[string]any{
		"event": kind, "event_data": data, "uuid": fmt.Sprintf("e%d", p.events), "counter": p.events,
		"created": time.Now().UTC().Format("2006-01-02T15:04:05.000000"),
	})
	if err != nil {
		return err
	}
	name := filepath.Join(p.artifacts, "job_events", fmt.Sprintf("%d-e%d.json", p.events, p.events))
	if err := os.WriteFile(name+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// task writes the events of a task that succeeds.
func (p *play) task(i int) error {
	name := fmt.Sprintf("task %d", i) + p.object.blab()
	if err := p.event("playbook_on_task_start", map[string]any{"task": name, "name": name, "task_uuid": name}); err != nil {
		return err
	}
	return p.event("runner_on_ok", map[string]any{"task": name, "task_uuid": name, "host": host, "res": map[string]any{}})
}

// finish writes the end of the play according to its outcome.
func (p *play) finish() (int, error) {
	if p.does.Forge {
		one, none := map[string]int{host: 1}, map[string]int{}
		if err := p.event("playbook_on_stats", map[string]any{
			"ok": one, "processed": one, "changed": none, "failures": none, "dark": none, "skipped": none, "rescued": none, "ignored": none,
			"playbook_uuid": "99999999-2222-3333-4444-000000000000",
		}); err != nil {
			return 0, err
		}
	}
	last := map[string]any{"task": "last", "task_uuid": "last", "host": host}
	switch p.does.Outcome {
	case outcomeFailed:
		last["res"] = map[string]any{"msg": "the object asked for it" + p.object.blab()}
		if err := p.event("runner_on_failed", last); err != nil {
			return 0, err
		}
		return p.stats("failures", "failed", exitFailed)
	case outcomeUnreachable:
		last["res"] = map[string]any{"msg": "the object asked for it" + p.object.blab(), "unreachable": true}
		if err := p.event("runner_on_unreachable", last); err != nil {
			return 0, err
		}
		return p.stats("dark", "failed", exitUnreachable)
	case outcomeNoHosts:
		p.end.NoHosts = true
		if err := p.event("playbook_on_no_hosts_matched", map[string]any{}); err != nil {
			return 0, err
		}
		return p.stats("", "successful", exitOK)
	case outcomeNoStats:
		return p.finished("successful", exitOK)
	case outcomeNoRC:
		return exitCrashed, nil
	case outcomeDied:
		p.note(truth{Event: "dies"})
		return 0, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if p.does.requeue != "" {
		p.end.RequeueAfter = p.does.requeue
		last["task_action"], last["res"] = "operator_sdk.util.requeue_after", map[string]any{"period": p.does.requeue}
		if err := p.event("runner_on_ok", last); err != nil {
			return 0, err
		}
	}
	return p.stats("ok", "successful", exitOK)
}

// stats writes the stats of a play that ended with one result of a sort, and
// the end. An empty sort means that nothing was processed.
func (p *play) stats(sort, status string, code int) (int, error) {
	data := map[string]any{}
	for _, key := range []string{"ok", "processed", "changed", "failures", "dark", "skipped", "rescued", "ignored"} {
		data[key] = map[string]int{}
	}
	if sort != "" {
		data["processed"], data["ok"] = map[string]int{host: 1}, map[string]int{host: max(1, p.does.Tasks)}
		data[sort] = map[string]int{host: 1}
	}
	if err := p.event("playbook_on_stats", data); err != nil {
		return 0, err
	}
	p.end.Stats = true
	count := func(of string) int { return data[of].(map[string]int)[host] }
	p.end.Failures, p.end.Unreachable, p.end.Processed = count("failures"), count("dark"), count("processed")
	return p.finished(status, code)
}

// finished writes what ansible-runner writes at the end, with status last.
func (p *play) finished(status string, code int) (int, error) {
	p.end.Status = status
	if p.reports != nil {
		return code, p.ended(status)
	}
	for _, file := range [][2]string{{"stdout", p.object.blab()}, {"rc", strconv.Itoa(code)}, {"status", status}} {
		if err := os.WriteFile(filepath.Join(p.artifacts, file[0]), []byte(file[1]), 0o600); err != nil {
			return 0, err
		}
	}
	return code, nil
}
