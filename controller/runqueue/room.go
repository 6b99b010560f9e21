package runqueue

import "time"

// Used notes how much memory a run of the kind has taken.
func (k *Kind) Used(bytes int64) {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	k.need = max(bytes, k.need-k.need/10) // a large run is remembered for a while
}

// fits reports whether there is memory for one more run of a kind. A single run always fits,
// since waiting would not give it more memory.
func (q *Queue) fits(k *Kind) bool {
	fits := true
	if q.opts.Memory != nil {
		used, limit := q.opts.Memory()
		needs := k.need
		for _, k := range q.kinds {
			needs += int64(k.running) * k.need
		}
		if q.running == 0 || q.base == 0 {
			q.base = used // by the operator itself
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

// yields reports whether a run has to wait so that the memory of ended runs goes to the starved kind. Deletions, manual runs
// and runs that take no memory do not wait. Others wait for half a minute after the first minute, for one minute after two,
// and so on up to 8 of each 32 minutes, so that a long run that leaves no memory does not stop everything for longer.
func (q *Queue) yields(k *Kind, class Class, now time.Time) bool {
	if q.starved == nil || k == q.starved || k.need == 0 || class <= Manual {
		return false
	}
	const most = 16 * memoryPatience
	waited, span := now.Sub(q.starvedSince), memoryPatience
	for 2*span <= waited && span < most {
		span *= 2
	}
	waited %= 2 * span
	return span <= waited && waited < span+span/2
}

// wants reports whether a run of the kind waits that may start, apart from memory and the places of all kinds.
func (k *Kind) wants(now time.Time) bool {
	for class, n := range k.waiting {
		rolls := true
		if r := k.rollouts[class]; r != nil {
			rolls, _ = r.admits(now)
		}
		if n > 0 && rolls {
			return k.shared.running < k.shared.max
		}
	}
	return false
}
