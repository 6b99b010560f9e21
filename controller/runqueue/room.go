package runqueue

import "time"

// Used notes how much memory a run of the kind has taken.
func (k *Kind) Used(bytes int64) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	k.need = max(bytes, k.need-k.need/10) // a large one is remembered for a while
}

// fits tells whether there is memory for one more run of a kind. One run always has
// enough: nothing else would give it more.
func (q *Queue) fits(k *Kind) bool {
	fits := true
	if q.opts.Memory != nil {
		used, limit := q.opts.Memory()
		needs := k.need
		for _, k := range q.kinds {
			needs += int64(k.running) * k.need
		}
		if q.running == 0 || q.base == 0 {
			q.base = used // of the operator itself
		}
		fits = q.running == 0 || limit == 0 || max(used+k.need, q.base+needs) <= limit/100*memoryPercent
	}
	return fits
}

func (q *Queue) waitsForMemory(waits bool) {
	if q.short != waits && q.opts.OnMemory != nil {
		q.opts.OnMemory(waits)
	}
	q.short = waits
}

// holds tells whether nothing starts but a run of the starved kind, so that what ends makes room for it. That is so after a
// minute for half a minute, after two for one, and so on: it comes to run, and where a long run leaves no room, the others wait for
// half of the time at most.
func (q *Queue) holds(now time.Time) bool {
	if q.starved == nil {
		return false
	}
	waited, span := now.Sub(q.starvedSince), memoryPatience
	for 2*span <= waited {
		span *= 2
	}
	return span <= waited && waited < span+span/2
}
