package main

import (
	"github.com/rolewright/rolewright/test/procs"
)

// usedBy returns what a process tree has used so far, including processes that have
// ended and were waited for.
func usedBy(root int) (share, error) {
	processes, err := procs.Tree(root)
	var sum share
	for _, p := range processes {
		s, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		const ticks = 100 // USER_HZ, which is 100 on every Linux that Go runs on
		sum = sum.plus(share{
			user: float64(int(s.UTime)+s.CUTime) / ticks, system: float64(int(s.STime)+s.CSTime) / ticks, faults: float64(s.MinFlt + s.CMinFlt),
		})
	}
	return sum, err
}

// footprint is the memory of processes in MiB: private memory, and private memory plus
// their shares of shared memory.
type footprint struct{ private, proportional float64 }

func (f footprint) less(g footprint) footprint {
	return footprint{f.private - g.private, f.proportional - g.proportional}
}

// footprintOf returns the memory of a process tree without its root (proc_pid_smaps(5)).
func footprintOf(root int) (footprint, error) {
	var sum footprint
	processes, err := procs.Tree(root)
	if err != nil {
		return sum, err
	}
	for _, p := range processes[1:] {
		m, err := p.ProcSMapsRollup()
		if err != nil {
			continue // it has ended
		}
		const mib = 1 << 20
		sum.proportional += float64(m.Pss) / mib
		sum.private += float64(m.PrivateClean+m.PrivateDirty) / mib
	}
	return sum, nil
}
