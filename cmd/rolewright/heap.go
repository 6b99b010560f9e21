package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Percentages for GOGC. The operator idles most of the time, and its runs need the memory: less garbage
// is worth a little more CPU. With many objects, garbage takes most of the memory.
const (
	leanHeap    = 50
	leanestHeap = 15
	// manyObjects is the number of live bytes above which there are many objects: about 30,000.
	manyObjects = 128 << 20
)

// keepLean makes the garbage collector run earlier than by default, and earlier still while there are many
// objects, until ctx ends. It does nothing if GOGC is set.
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
