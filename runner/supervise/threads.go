package supervise

import (
	"runtime"
	"sync"
)

// spareThreads are those of a supervising process; see [ReserveThreads].
const spareThreads = 8

// ReserveThreads has the Go runtime start n threads, which it keeps. It ends a
// program that needs another thread when no more processes can be started: a run
// that forks without end would end what is to end it.
func ReserveThreads(n int) {
	var started, used sync.WaitGroup
	started.Add(n)
	for range n {
		used.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			started.Wait()
		})
	}
	used.Wait()
}
