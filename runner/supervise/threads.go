package supervise

import (
	"runtime"
	"sync"
)

// spareThreads is the number of threads that a supervising process reserves; see [ReserveThreads].
const spareThreads = 8

// ReserveThreads makes the Go runtime start n threads, which it keeps. The runtime
// ends a program that needs another thread when no more processes can be started: a
// fork bomb would thus end the program that has to stop it.
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
