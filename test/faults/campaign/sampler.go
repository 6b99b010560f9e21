package campaign

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rolewright/rolewright/test/faults/history"
	"github.com/rolewright/rolewright/test/procs"
)

// sampling is how often all processes of the machine are checked (I7).
const sampling = 100 * time.Millisecond

// sampler notes when each run was last seen to have a process. It is safe for
// concurrent use.
type sampler struct {
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	// seen maps the truth log, which marks a plan, and the run to when the run was last seen.
	seen map[string]map[string]history.Instant
}

func newSampler() *sampler {
	ctx, stop := context.WithCancel(context.Background())
	s := &sampler{stop: stop, done: make(chan struct{}), seen: map[string]map[string]history.Instant{}}
	go func() {
		defer close(s.done)
		ticks := time.NewTicker(sampling)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				s.sample()
			}
		}
	}()
	return s
}

// sample checks each process. It leaves out processes that are frozen or dead: they do
// nothing.
func (s *sampler) sample() {
	for _, p := range processes() {
		now := history.Boot() // the process lived at least until then
		environ := procs.Environ(p.PID)
		truth, run := variable(environ, truthVariable), variable(environ, "ROLEWRIGHT_RUN")
		if truth == "" || run == "" {
			continue
		}
		if s, err := p.Stat(); err != nil || s.State == "T" || s.State == "Z" {
			continue
		}
		s.mu.Lock()
		if s.seen[truth] == nil {
			s.seen[truth] = map[string]history.Instant{}
		}
		s.seen[truth][run] = now
		s.mu.Unlock()
	}
}

// take returns what was seen of a plan, and removes it.
func (s *sampler) take(truth string) map[string]history.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := maps.Clone(s.seen[truth])
	delete(s.seen, truth)
	return seen
}

func (s *sampler) close() {
	s.stop()
	<-s.done
}
