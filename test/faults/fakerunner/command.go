package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// newCommand returns a run of the program as the command of a watch; nil if it is not one.
func newCommand() *play {
	if os.Getenv("ROLEWRIGHT_PROTOCOL") == "" {
		return nil
	}
	return &play{dir: os.Getenv("ROLEWRIGHT_DIR"), ident: os.Getenv("ROLEWRIGHT_RUN_ID"), reports: os.NewFile(3, "reports")}
}

// report reports an event in the form of a command's reports.
func (p *play) report(kind string, data map[string]any) error {
	line := map[string]any{}
	res, _ := data["res"].(map[string]any)
	switch {
	case kind == "playbook_on_task_start":
		line["type"], line["step"] = "progress", data["task"]
	case kind == "runner_on_failed", kind == "runner_on_unreachable":
		p.message = fmt.Sprint(res["msg"])
		return nil
	case res["period"] != nil:
		line["type"], line["after"] = "requeue", res["period"]
	case data["playbook_uuid"] != nil:
		fmt.Println(`{"type":"result","verdict":"ok"}`) // an object can make a command print this
		return nil
	case kind == "playbook_on_stats":
		line["type"], line["verdict"], line["message"] = "result", "failed", p.message
		if ok, _ := data["ok"].(map[string]int); len(ok) > 0 && p.message == "" {
			line["verdict"] = "ok"
		}
	default:
		return nil
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = p.reports.Write(append(text, '\n'))
	}
	return err
}

// ended ends the output of a command. It also ends the daemons, unless the command was stopped: a command
// that leaves processes behind fails.
func (p *play) ended(status string) error {
	fmt.Println(p.object.blab())
	if status == "canceled" {
		return nil
	}
	for _, daemon := range p.daemons {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	}
	if p.does.Outcome != outcomeNoStats {
		return nil
	}
	_, err := p.reports.WriteString(`{"type":"result","verdict":"ok"`) // cut short
	return err
}
