package runner

import (
	"errors"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner/supervise"
)

// The cases say which run is chosen if memory or processes run out. TestRun_ThatTakesAllIsEnded in runner/warm shows that
// such a run is stopped.
func TestReading_Greediest(t *testing.T) {
	t.Parallel()
	const mebi = 1 << 20
	r := reading{memory: 730 * mebi, memoryLimit: 768 * mebi, processes: 1000, processesLimit: 1024, assumed: true}
	of := func(takes ...int64) map[string]supervise.Load {
		loads := map[string]supervise.Load{}
		for i, n := range takes {
			loads[string(rune('a'+i))] = supervise.Load{Memory: n * mebi, Tasks: n}
		}
		return loads
	}
	for name, tt := range map[string]struct {
		loads  map[string]supervise.Load
		memory bool
		only   string
		want   string // the run that is stopped; empty for none
		shared bool   // whether the other runs are as much to blame
	}{
		"one takes most of the memory":            {of(50, 200), true, "", "b", false},
		"three take as much, and more than half":  {of(180, 183, 181), true, "", "b", true},
		"what is no run takes most of the memory": {of(50, 60), true, "", "", false},
		"the last one has not settled":            {of(180, 183, 181), true, "a", "a", true},
		"the last one has gone, and not settled":  {of(180, 183, 181), true, "z", "", false},
		"no run":                                  {of(), true, "", "", false},
		"one has most of the processes":           {of(20, 300), false, "", "b", false},
		"many runs have some":                     {of(20, 21, 22), false, "", "", false},
	} {
		run, reason := r.greediest(tt.loads, tt.memory, tt.only)
		if reason == nil {
			run = ""
		}
		if run != tt.want {
			t.Errorf("%s: %q is stopped, %v; want %q", name, run, reason, tt.want)
		}
		if reason != nil && tt.memory != errors.Is(reason, ErrMemory) {
			t.Errorf("%s: %v", name, reason)
		}
		if errors.Is(reason, ErrMemoryShared) != tt.shared {
			t.Errorf("%s: shared: %t; %v", name, !tt.shared, reason)
		}
	}
	if _, reason := r.greediest(of(300), false, ""); reason == nil || !strings.Contains(reason.Error(), "1000 of 1024, which is taken for the limit") {
		t.Errorf("the limit that is assumed: %v", reason)
	}
}

// If many processes have used up the memory, their number is the problem: killing one only makes room for the next.
func TestReading_NoProcesses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		memory, processes int64 // of 1000 each
		want              bool
	}{{500, 890, false}, {500, 901, true}, {960, 251, true}, {960, 250, false}} {
		r := reading{memory: tt.memory, memoryLimit: 1000, processes: tt.processes, processesLimit: 1000}
		if got := r.noProcesses(); got != tt.want {
			t.Errorf("%+v: %t, want %t", tt, got, tt.want)
		}
	}
}
