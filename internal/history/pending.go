package history

import "slices"

// maxPending and maxWaits bound the runs that wait to be written, and their bytes, which are also at most MaxBytes: a
// process that cannot open the file, because another one has it, never writes them.
const (
	maxPending = 1000
	maxWaits   = 32 << 20
)

// Add adds a run that has ended. It does not wait: if runs end faster than they can be
// written, the oldest that wait are lost.
func (s *Store) Add(r Run) {
	s.mu.Lock()
	s.pending, s.waits = append(s.pending, r), s.waits+size(r)
	over := 0
	for s.waits > min(s.opts.MaxBytes, maxWaits) && over < len(s.pending)-1 || len(s.pending)-over > maxPending {
		s.waits -= size(s.pending[over])
		over++
	}
	missing := slices.Clone(s.pending[:over])
	s.pending = slices.Delete(s.pending, 0, over)
	s.mu.Unlock()
	s.wakeUp()
	if s.db.Load() == nil {
		return
	}
	for _, r := range missing {
		s.opts.Log.Info("A run is missing in the history: too many wait to be written", "job", r.ID)
	}
}

// size estimates how much memory a run takes.
func size(r Run) int64 {
	const (
		one  = 100 // of the run, a task or a write, without its texts
		each = 16  // of a text, without its bytes
	)
	n := one * (1 + len(r.Tasks) + len(r.Writes))
	add := func(texts ...string) {
		for _, text := range texts {
			n += each + len(text)
		}
	}
	add(r.ID, r.Namespace, r.Name, r.Trigger, r.Message)
	add(r.Warnings...)
	if r.Source != nil {
		add(r.Source.Lines...)
	}
	for _, t := range r.Tasks {
		add(t.Name, t.Role, t.Path, t.Host, t.Play, t.Action, t.Outcome, t.Message)
	}
	for _, w := range r.Writes {
		add(w.Verb, w.Resource, w.Subresource, w.Namespace, w.Name, w.Result)
		add(w.Fields...)
	}
	return int64(n)
}
