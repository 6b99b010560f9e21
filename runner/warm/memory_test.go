package warm_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/rolewright/rolewright/test/must"
)

// Runs give their memory back: no process of them is left, and the server does not grow with each run.
func TestRun_GivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	const early, late, most = 5, 30, 1 << 10 // KiB: a leak of a page per run would be 100
	o := options(t)
	r, _ := start(t, o)
	found := slices.Collect(maps.Keys(servers(t, o.Dir)))
	if len(found) != 1 {
		t.Fatalf("servers: %v", found)
	}
	batch := func(n int) {
		var runs sync.WaitGroup
		defer runs.Wait()
		for range n {
			runs.Go(func() {
				req := request(t, simple)
				res, err := r.Run(t.Context(), req)
				if err != nil || !res.Verdict().Success {
					t.Errorf("error %v, verdict %+v", err, res.Verdict())
				}
				if left := processes(t, req.ID); len(left) > 0 {
					t.Errorf("left of a run: %v", left)
				}
			})
		}
	}
	batch(early)
	before := anonymous(t, found[0])
	for range (late - early) / early {
		batch(early)
	}
	after := anonymous(t, found[0])
	t.Logf("memory of the server: %d KiB after %d runs, %d after %d", before, early, after, late)
	if after > before+most {
		t.Errorf("memory of the server: %d KiB after %d runs, %d after %d: more than %d more", before, early, after, late, most)
	}
	if trace := traced(t, o); strings.Count(trace, "playbook forked\n") != late {
		t.Errorf("%d of %d runs were forked", strings.Count(trace, "playbook forked\n"), late)
	}
}

// anonymous returns the anonymous memory of a process, in KiB (proc_pid_smaps(5)).
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	process := must.Get(procfs.NewProc(pid))(t)
	kib := int(must.Get(process.ProcSMapsRollup())(t).Anonymous >> 10)
	if kib == 0 {
		t.Fatalf("smaps_rollup of process %d has no Anonymous", pid)
	}
	return kib
}
