package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Percent of garbage before the garbage collector runs. The operator idles most of the time, and its
// runs need the memory: less garbage is worth a little more CPU. With many objects, garbage is what
// takes most.
const (
	leanHeap    = 50
	leanestHeap = 15
	// manyObjects is from how many live bytes on there are many: about 30,000 objects.
	manyObjects = 128 << 20
)

// keepLean has the garbage collector run earlier than it would, and earlier still while there are many
// objects, until ctx ends; unless GOGC says when.
func keepLean(ctx context.Context) error {
	if _, set := os.LookupEnv("GOGC"); set {
		return nil
	}
	debug.SetGCPercent(leanHeap)
	ticks := time.NewTicker(10 * time.Second)
	defer ticks.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for is := leanHeap; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		metrics.Read(live)
		wanted := leanHeap
		if live[0].Value.Uint64() > manyObjects {
			wanted = leanestHeap
		}
		if wanted != is {
			debug.SetGCPercent(wanted)
			is = wanted
		}
	}
}
