package jobevent

import (
	"errors"
	"io"
)

// Limits on one event file, in bytes. ansible-runner limits a result to 700,000
// characters and nothing else: a task that prints 10 MB under -v makes a file of
// 20 MB.
const (
	// maxString bounds one JSON string, as written in the file.
	maxString = 64 << 10
	// maxValue bounds one member of the event or of its event_data. It is above
	// ansible-runner's limit for results.
	maxValue = 768 << 10
	// maxEvent bounds the whole event after shrinking.
	maxEvent = 2 << 20
	// maxInput bounds how much is read at all: seconds of work, not minutes.
	maxInput = 1 << 30
)

var (
	// ErrTooLarge is wrapped by errors of [Decode] about an event that is too
	// large even with its long strings cut.
	ErrTooLarge = errors.New("event is too large")

	errControl = errors.New("control character in a string")
)

// shrink reads JSON and returns it with the limits applied: long strings are
// cut and end in "…", a member that stays too long becomes null, and so do
// NaN and Infinity, which Python writes and Go does not read. Apart from this
// it neither validates nor changes the text.
func shrink(r io.Reader) ([]byte, error) {
	// Room for the usual event of one or two KiB.
	s := shrinker{value: -1, out: make([]byte, 0, 2<<10)}
	buf := make([]byte, 4<<10)
	for read := 0; ; {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			if skipped := s.skip(rest); skipped > 0 {
				rest = rest[skipped:]
				continue
			}
			s.step(rest[0])
			rest = rest[1:]
		}
		read += n
		switch {
		case s.err != nil:
			return nil, s.err
		case read > maxInput:
			return nil, ErrTooLarge
		case err == io.EOF:
			return s.out, nil
		case err != nil:
			return nil, err
		}
	}
}

// A shrinker is a state machine that reads bytes. It knows only as much JSON as it
// needs: where strings begin and end, and how deep the nesting is.
type shrinker struct {
	out []byte
	err error

	depth int
	// value is where the current member's value starts in out, -1 outside of a
	// value; valueDepth is the depth of the object that has the member.
	// dropping is true while the rest of that value is skipped.
	value, valueDepth int
	dropping          bool
	// word is true inside NaN or Infinity.
	word bool

	inString bool
	// start and whole are offsets in out: the string's first byte, and the
	// last place where it may be cut without splitting a character.
	start, whole int
	// cutting is true while the rest of a string is skipped.
	cutting bool
	// escape counts the bytes of the current escape sequence; code is the
	// value of a \u sequence; high tells that a low surrogate has to follow.
	escape int
	code   uint16
	high   bool
}

// skip returns how many bytes can be skipped without a step for each: in a long
// string, nearly all.
func (s *shrinker) skip(text []byte) int {
	if !s.inString || !s.cutting && !s.dropping || s.escape > 0 || s.high {
		return 0
	}
	for i, b := range text {
		if b == '"' || b == '\\' || b < 0x20 {
			return i
		}
	}
	return len(text)
}

func (s *shrinker) step(b byte) {
	if s.inString {
		s.inside(b)
		return
	}
	if s.word {
		if b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' {
			return
		}
		s.word = false
	}
	switch b {
	case '"':
		s.emit(b)
		s.inString, s.cutting, s.high = true, false, false
		s.start, s.whole = len(s.out), len(s.out)
	case '{', '[':
		s.depth++
		s.emit(b)
	case '}', ']':
		s.endValue()
		s.depth--
		s.emit(b)
	case ',':
		s.endValue()
		s.emit(b)
	case ':':
		s.emit(b)
		// Depth 1 is the event, depth 2 its event_data.
		if s.depth <= 2 && !s.dropping {
			s.value, s.valueDepth = len(s.out), s.depth
		}
	case 'N', 'I':
		s.word = true
		s.null()
	default:
		s.emit(b)
	}
}

// inside handles a byte of a string or its closing quote.
func (s *shrinker) inside(b byte) {
	if b < 0x20 {
		s.err = errControl
		return
	}
	if s.escape == 0 {
		if continues := b&0xC0 == 0x80; !continues && !s.high {
			s.whole = len(s.out)
		}
		if b == '"' {
			s.inString, s.cutting = false, false
			s.emit(b)
			return
		}
		s.high = false
	}
	s.trackEscape(b)
	if s.cutting {
		return
	}
	if !s.dropping && len(s.out)-s.start >= maxString {
		s.out = append(s.out[:s.whole], "…"...)
		s.cutting = true
		return
	}
	s.emit(b)
}

func (s *shrinker) trackEscape(b byte) {
	switch {
	case s.escape == 0 && b == '\\':
		s.escape = 1
	case s.escape == 1 && b == 'u':
		s.escape, s.code = 2, 0
	case s.escape == 1:
		s.escape = 0
	case s.escape >= 2:
		s.code = s.code<<4 | hexDigit(b)
		if s.escape++; s.escape == 6 {
			s.escape, s.high = 0, s.code >= 0xD800 && s.code < 0xDC00
		}
	}
}

// hexDigit returns some value for a byte that is no digit: the decoder refuses it.
func hexDigit(b byte) uint16 {
	if b >= 'A' {
		return uint16(b&0x0F) + 9
	}
	return uint16(b & 0x0F)
}

func (s *shrinker) endValue() {
	if s.value >= 0 && s.valueDepth == s.depth {
		s.value, s.dropping = -1, false
	}
}

// null writes null in place of a number that JSON cannot express.
func (s *shrinker) null() {
	if s.dropping {
		return
	}
	if n := len(s.out); n > 0 && s.out[n-1] == '-' {
		s.out = s.out[:n-1]
	}
	for _, b := range []byte("null") {
		s.emit(b)
	}
}

func (s *shrinker) emit(b byte) {
	if s.dropping {
		return
	}
	s.out = append(s.out, b)
	if s.value >= 0 && len(s.out)-s.value > maxValue {
		s.out = append(s.out[:s.value], "null"...)
		s.dropping = true
	}
	if len(s.out) > maxEvent {
		s.err = ErrTooLarge
	}
}
