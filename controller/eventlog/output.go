package eventlog

import (
	"io"
	"sync"
)

// Output is a writer that the loggers of all runs share with each other, and with
// anything else that writes whole lines to the same place. Each Write reaches the
// underlying writer in one piece, and the line and the block of an event stay
// together.
type Output struct {
	// events is held while several writes that belong together are made, some of
	// them by others (the sink of the structured lines).
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

// block writes a text in one piece.
func (o *Output) block(s string) {
	o.together(func() { _, _ = io.WriteString(o, s) })
}

// together calls f, which may call Write. No other function runs in together meanwhile.
func (o *Output) together(f func()) {
	o.events.Lock()
	defer o.events.Unlock()
	f()
}
