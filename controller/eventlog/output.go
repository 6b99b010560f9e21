package eventlog

import (
	"io"
	"sync"
)

// Output is a writer that the loggers of all runs share with each other, and
// with whatever else writes whole lines to the same place: each Write reaches
// the underlying writer whole, and the line and the block of an event stay
// together among those of other events.
type Output struct {
	// events is held while something that belongs together is written, of
	// which parts are written by others (the sink of the structured lines).
	events sync.Mutex
	// writes is held during a single Write.
	writes sync.Mutex
	to     io.Writer
}

// NewOutput returns an Output that writes to w; nil discards.
func NewOutput(w io.Writer) *Output {
	if w == nil {
		w = io.Discard
	}
	return &Output{to: w}
}

// Write writes p in one piece. It may be called from any goroutine.
func (o *Output) Write(p []byte) (int, error) {
	o.writes.Lock()
	defer o.writes.Unlock()
	return o.to.Write(p)
}

// block writes a text that belongs together.
func (o *Output) block(s string) {
	o.together(func() { _, _ = io.WriteString(o, s) })
}

// together runs f, in which Write may be called, while no other's is run.
func (o *Output) together(f func()) {
	o.events.Lock()
	defer o.events.Unlock()
	f()
}
