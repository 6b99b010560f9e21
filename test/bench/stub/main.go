// Command stub is an ansible-runner that does nothing, at once: it writes the
// artifacts of a play of one task that succeeded. It stands in for the real one
// where Rolewright's own cost is measured, and is a program of its own so that
// it starts as fast as a program can. Where it is told so, it lends the run's
// access to the cluster to the measurement before it ends.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// timesEnv names the file to which the stub appends how long it took.
const timesEnv = "BENCH_STUB_TIMES"

// lendEnv names the directory in which the stub says where the kubeconfig of
// its run is; empty for a run that takes no time.
const lendEnv = "BENCH_STUB_LEND"

func main() { os.Exit(stub(os.Args[1:])) }

// stub understands what Rolewright passes: run <dir> … -i <ident>, and --version.
func stub(args []string) int {
	began := time.Now()
	if slices.Contains(args, "--version") {
		fmt.Println("2.4.0")
		return 0
	}
	if len(args) < 2 {
		return 2
	}
	ident := args[slices.Index(args, "-i")+1]
	artifacts := filepath.Join(args[1], "artifacts", ident)
	if err := writeArtifacts(artifacts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if dir := os.Getenv(lendEnv); dir != "" {
		if err := lend(filepath.Join(dir, ident), filepath.Join(args[1], "kubeconfig")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	note(strconv.FormatInt(time.Since(began).Nanoseconds(), 10))
	return 0
}

func writeArtifacts(dir string) error {
	events := filepath.Join(dir, "job_events")
	if err := os.MkdirAll(events, 0o700); err != nil {
		return err
	}
	const uuid = "11111111-2222-3333-4444-555555555555"
	one, none := map[string]int{"localhost": 1}, map[string]int{}
	for i, e := range []map[string]any{
		{"event": "playbook_on_start", "event_data": map[string]any{}},
		{"event": "playbook_on_task_start", "event_data": map[string]any{"task": "nothing", "name": "nothing"}},
		{"event": "runner_on_ok", "event_data": map[string]any{"task": "nothing", "host": "localhost", "res": map[string]any{}}},
		{"event": "playbook_on_stats", "event_data": map[string]any{
			"ok": one, "processed": one, "changed": none, "failures": none, "dark": none, "skipped": none, "rescued": none, "ignored": none,
		}},
	} {
		e["uuid"], e["counter"], e["created"] = fmt.Sprintf("e%d", i), i+1, time.Now().UTC().Format("2006-01-02T15:04:05.000000")
		e["event_data"].(map[string]any)["playbook_uuid"] = uuid
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		name := filepath.Join(events, fmt.Sprintf("%d-e%d.json", i+1, i))
		if err := os.WriteFile(name+".tmp", data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(name+".tmp", name); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"stdout": "", "rc": "0", "status": "successful"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// lend writes the path of the kubeconfig into file, and returns when somebody
// has removed it.
func lend(file, kubeconfig string) error {
	if err := os.WriteFile(file+".tmp", []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return err
	}
	for {
		_, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// note appends a line to the file of times; one write, so that lines stay whole.
func note(line string) {
	f, err := os.OpenFile(os.Getenv(timesEnv), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}
