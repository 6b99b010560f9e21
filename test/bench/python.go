package main

import (
	"bytes"
	"context"
	_ "embed" // of the Python program
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed client.py
var clientProgram string

// pythonTimes is how many clients are made in each way.
const pythonTimes = 30

// pythonClients compares how long new clients in Python take, as Ansible's modules make them.
func (b *bench) pythonClients(ctx context.Context, run *access) error {
	python, ok := findPython(ctx)
	if !ok {
		fmt.Println("\nno Python that has the package kubernetes: its clients are not measured")
		return nil
	}
	insecure := filepath.Join(b.dir, "plain.kubeconfig")
	text, err := os.ReadFile(run.kubeconfig)
	if err != nil {
		return err
	}
	if err := os.WriteFile(insecure, bytes.Replace(text, []byte("server: https://"), []byte("server: http://"), 1), 0o600); err != nil {
		return err
	}
	ways := []struct{ name, kubeconfig string }{
		{"direct, TLS", os.Getenv("KUBECONFIG")}, {"proxied, TLS", run.kubeconfig}, {"proxied, plain", insecure},
	}
	args := []string{"-c", clientProgram, strconv.Itoa(pythonTimes), latencyNamespace, "read"}
	for _, w := range ways {
		args = append(args, w.kubeconfig)
	}
	out, err := exec.CommandContext(ctx, python, args...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return fmt.Errorf("time clients in Python: %w", err)
	}
	var times map[string]series
	if err := json.Unmarshal(out, &times); err != nil {
		return fmt.Errorf("read the times of clients in Python: %w", err)
	}
	header(fmt.Sprintf("new client in Python and one GET, %d times, ms", pythonTimes))
	for _, w := range ways {
		times[w.kubeconfig].row(w.name, "")
	}
	for _, w := range ways[1:] {
		times[w.kubeconfig].less(times[ways[0].kubeconfig]).row("  difference, "+w.name, "")
	}
	return nil
}

// findPython finds the interpreter of Ansible: the system's, or the first in PATH.
func findPython(ctx context.Context) (string, bool) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(ctx, python, "-c", "import kubernetes").Run() == nil {
			return python, true
		}
	}
	return "", false
}
