package redact

import "io"

// Reader returns the text of r with the values hidden. Its memory is bounded by the
// longest value, whatever the text is.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &reader{m: m, from: r}
}

type reader struct {
	m    *Masker
	from io.Reader
	// in has been read and may be the beginning of a value; out will be returned.
	in, out []byte
	err     error
}

// readSize is how many bytes are read at a time.
const readSize = 32 << 10

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	for len(r.out) == 0 && r.err == nil {
		buf := make([]byte, readSize)
		var n int
		n, r.err = r.from.Read(buf)
		r.in = append(r.in, buf[:n]...)
		r.step(r.err != nil)
	}
	if len(r.out) == 0 {
		return 0, r.err
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// step moves the part of in whose masking is decided to out; at the end, all of it.
func (r *reader) step(last bool) {
	m := r.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	text := string(r.in)
	switch {
	case m.withheld != "":
		r.in, r.out, r.err = nil, []byte(Replacement+"\n"), io.EOF
		return
	case m.patterns == nil:
		r.in, r.out = nil, r.in
		return
	}
	spans, open := m.find(text, edges{end: !last, more: !last})
	end := len(text)
	switch hold := 4*m.patterns.longest + readSize; {
	case last:
	case len(text) > hold:
		// There are more blanks than any encoder inserts: treat the open match as a value.
		if open < len(text) {
			spans = append(spans, span{open, len(text)})
		}
	default:
		end = whole(spans, min(open, max(0, len(text)-maxEscape)))
	}
	var done []span
	for _, s := range spans {
		if s.to <= end {
			done = append(done, s)
		}
	}
	r.out = []byte(render(text[:end], done))
	r.in = append([]byte(nil), text[end:]...)
}

// whole returns the last position up to end that is not within a span.
func whole(spans []span, end int) int {
	for again := true; again; {
		again = false
		for _, s := range spans {
			if s.from < end && end < s.to {
				end, again = s.from, true
			}
		}
	}
	return end
}
