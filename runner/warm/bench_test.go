//go:build warm

package warm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/warm"
)

// BenchmarkRun measures the reference role against the API server of KUBECONFIG,
// forked and executed in turn, and reports medians: seconds of wall clock, and of
// CPU of the whole process tree with the fork server's share. Use -benchtime=10x.
func BenchmarkRun(b *testing.B) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		b.Skip("KUBECONFIG is not set: use bin/tools/controlplane exec -- go test -bench Run -benchtime 10x ./runner/warm")
	}
	o := options(b)
	pool := warm.New(o)
	defer pool.Close()
	if err := pool.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	forked := runner.New(runner.Options{Environ: o.Environ, Supervisor: o.Supervisor, Warm: pool})
	defer forked.Close()
	executed := runner.New(runner.Options{Environ: o.Environ, Supervisor: o.Supervisor})
	defer executed.Close()
	server := 0
	for pid := range processes(b, "rolewright-fork-server "+o.Dir) {
		server = pid
	}
	var pairs [2]struct{ wall, cpu []float64 }
	measure := func(i int, r *runner.Runner) {
		id := uuid.NewString()
		before, start := cpu(b, server), time.Now()
		res, err := r.Run(b.Context(), runner.Request{
			ID: id, Dir: filepath.Join(b.TempDir(), id), Content: runner.Content{Playbook: absolute(b, "testdata/reference/play.yml")},
			Env: map[string]string{"K8S_AUTH_KUBECONFIG": kubeconfig},
		})
		if err != nil || !res.Verdict().Success {
			b.Fatalf("%v %+v", err, res.Verdict())
		}
		pairs[i].wall = append(pairs[i].wall, time.Since(start).Seconds())
		pairs[i].cpu = append(pairs[i].cpu, cpu(b, server)-before)
	}
	measure(0, forked) // creates the objects
	pairs[0].wall, pairs[0].cpu = nil, nil
	for b.Loop() {
		measure(0, forked)
		measure(1, executed)
	}
	var medians [4]float64
	for i, values := range [][]float64{pairs[0].wall, pairs[0].cpu, pairs[1].wall, pairs[1].cpu} {
		slices.Sort(values)
		medians[i] = values[len(values)/2]
		b.ReportMetric(medians[i], []string{"forked-wall-s", "forked-cpu-s", "executed-wall-s", "executed-cpu-s"}[i])
	}
	b.ReportMetric(medians[2]/medians[0], "wall-ratio")
	b.ReportMetric(medians[3]/medians[1], "cpu-ratio")
}

func absolute(b *testing.B, path string) string {
	b.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// cpu is what the children of this process and the fork server have used, with
// their descendants that have ended, in seconds.
func cpu(b *testing.B, server int) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(server) + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')'):])
	ticks := 0
	for _, field := range fields[12:16] { // utime to cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	const ticksPerSecond = 100
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime) + float64(ticks)/ticksPerSecond
}
