package redact

import (
	"crypto/sha256"
	"strings"
	"sync"
)

// Replacement stands where a value was.
const Replacement = "[masked]"

// minValue is the shortest value that is masked, in bytes without blanks. What
// is shorter occurs in every log by chance: "true", "admin", "8080".
const minValue = 6

// maxPatterns bounds the memory of one Masker: about 4 MiB of values, or 12 of
// large ones.
const maxPatterns = 32 << 20

// commonWords are never masked: the output of every run is made of them, and
// they are no secret.
const commonWords = " localhost default kubernetes kube-system cluster.local ansible changed failed ignored skipped rescued unreachable" +
	" Opaque string enabled disabled namespace password username token secret "

// Masker hides the values of one run. The zero value knows none and changes
// nothing. Safe for concurrent use; nil changes nothing.
type Masker struct {
	mu sync.RWMutex
	// exempt are words that are not masked though they be values.
	exempt map[string]bool
	// patterns holds what is searched for, as [normal] leaves it, by the first
	// bytes; maybe tells most keys that patterns has not.
	patterns map[uint32][]pattern
	maybe    [1 << 16 / 64]uint64
	// size is the sum of the patterns' lengths, and longest the largest.
	size, longest int
	// seen are the digests of values that were added: many a Secret is read
	// over and over.
	seen map[[sha256.Size]byte]struct{}
	// withheld is true once all text is hidden.
	withheld bool
}

// pattern is one form of one value.
type pattern struct {
	text string
	// base64 is true for the inner part of an encoded value: the characters
	// next to it hold bits of the value, too.
	base64 bool
}

// New returns a Masker that leaves some words alone, such as the name of the
// run's object: they are everywhere, and known to everybody.
func New(exempt ...string) *Masker {
	m := &Masker{exempt: map[string]bool{}}
	for _, word := range exempt {
		m.exempt[word] = true
	}
	return m
}

// Withhold hides all text from now on: there are secrets that are not known.
func (m *Masker) Withhold() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.withheld, m.patterns, m.size = true, nil, 0
}

// Add hides values from now on, and their lines and parts: see the forms in
// forms.go. When there are more than memory is spent on, all text is withheld.
func (m *Masker) Add(values ...string) {
	if m == nil {
		return
	}
	for _, v := range values {
		if !m.first(v) {
			continue
		}
		for _, part := range parts(v) {
			m.add(part)
		}
	}
}

// first is true the first time that it is asked for a value.
func (m *Masker) first(value string) bool {
	digest := sha256.Sum256([]byte(value))
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[digest]; known || m.withheld {
		return false
	}
	if m.seen == nil {
		m.seen = map[[sha256.Size]byte]struct{}{}
	}
	m.seen[digest] = struct{}{}
	return true
}

func (m *Masker) add(value string) {
	if m.exempt[value] || strings.Contains(commonWords, " "+value+" ") || len(normal(value, false).text) < minValue {
		return
	}
	found := forms(value)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range found {
		m.insert(p)
	}
	if m.size > maxPatterns {
		m.withheld, m.patterns, m.size = true, nil, 0
	}
}

func (m *Masker) insert(p pattern) {
	if len(p.text) < minValue || m.withheld {
		return
	}
	key := keyOf(p.text)
	for _, q := range m.patterns[key] {
		if q.text == p.text {
			return
		}
	}
	if m.patterns == nil {
		m.patterns = map[uint32][]pattern{}
	}
	m.patterns[key] = append(m.patterns[key], p)
	h := hash(key)
	m.maybe[h/64] |= 1 << (h % 64)
	m.size += len(p.text)
	m.longest = max(m.longest, len(p.text))
}

// window is how many bytes of a pattern have to be seen before it is looked for.
const window = 4

func keyOf[T string | []byte](s T) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// hash spreads keys over the bits of Masker.maybe (Knuth, TAOCP 6.4).
func hash(key uint32) uint32 { return key * 2654435761 >> 16 }

// Mask returns text without values. Where the text was cut, which an ellipsis
// at its end says, the beginning of a value is hidden too.
func (m *Masker) Mask(text string) string {
	return m.mask(text, edges{end: strings.HasSuffix(text, ellipsis)})
}

// MaskTail is like Mask, for text of which the beginning is missing: the end of
// a value at its start is hidden too.
func (m *Masker) MaskTail(text string) string {
	return m.mask(text, edges{start: true, end: strings.HasSuffix(text, ellipsis)})
}

// ellipsis is what our own limits leave at the end of a text that they cut.
const ellipsis = "…"

func (m *Masker) mask(text string, cut edges) string {
	if m == nil || text == "" {
		return text
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.withheld {
		return Replacement
	}
	if len(m.patterns) == 0 {
		return text
	}
	body, mark := text, ""
	if cut.end {
		body, mark = strings.TrimSuffix(text, ellipsis), text[len(strings.TrimSuffix(text, ellipsis)):]
	}
	spans, open := m.find(body, cut)
	if open < len(body) {
		spans = append(spans, span{open, len(body)})
	}
	if len(spans) == 0 {
		return text
	}
	return render(body, spans) + mark
}
