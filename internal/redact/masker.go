package redact

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
)

// Replacement stands where a value was.
const Replacement = "[masked]"

// minValue is the shortest value that is masked, in bytes without blanks. Shorter
// values are in every log by chance: "true", "admin", "8080".
const minValue = 6

// Bounds on what one Masker searches for. maxPatterns is in bytes of patterns:
// about 4 MiB of values, or 12 MiB of large values.
const (
	maxPatterns = 32 << 20
	maxValues   = 20_000
)

// commonWords are never masked: they are in the output of every run, and are no
// secrets.
const commonWords = " localhost default kubernetes kube-system cluster.local ansible changed failed ignored skipped rescued unreachable" +
	" Opaque string enabled disabled namespace password username token secret "

// Masker hides the values of one run. The zero value knows no values and changes
// nothing; nil changes nothing, either. It is safe for concurrent use.
type Masker struct {
	// adding is held while values are added: a second Add of a value that is being
	// added returns when the value is hidden.
	adding sync.Mutex

	mu sync.RWMutex
	// exempt are words that are not masked, even if they are values.
	exempt map[string]bool
	// patterns has the texts that are searched for, in the form of [normal]; nil if
	// there are none.
	patterns *index
	// values counts the values and their parts.
	values int
	// seen has the digests of the values that were added: many Secrets are read
	// repeatedly.
	seen map[[sha256.Size]byte]struct{}
	// withheld says why all text is hidden; empty if it is not.
	withheld string
}

// New returns a Masker that does not mask the words in exempt, such as the name of
// the run's object: they are everywhere, and no secrets.
func New(exempt ...string) *Masker {
	m := &Masker{exempt: map[string]bool{}}
	for _, word := range exempt {
		m.exempt[word] = true
	}
	return m
}

// Withhold hides all text from now on, because there are unknown secrets.
func (m *Masker) Withhold() {
	m.withhold("the values of a Secret that it has read are not known")
}

func (m *Masker) withhold(why string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.withheld == "" {
		m.withheld, m.patterns, m.seen = why, nil, nil
	}
}

// Withheld says why all text is hidden, empty if it is not.
func (m *Masker) Withheld() string {
	if m == nil {
		return ""
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.withheld
}

// Add hides values, their lines and their parts from now on: see forms.go. If the
// values exceed the limits, or if ctx ends before all are known, all text is withheld.
// Add does not delay Mask, and returns soon when ctx ends.
func (m *Masker) Add(ctx context.Context, values ...string) {
	if m == nil {
		return
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	for _, v := range values {
		if len(v) > maxPatterns {
			m.withhold(tooMany)
		}
		if !m.first(v) {
			continue
		}
		all := parts(v)
		if len(all) > maxParts {
			m.withhold(tooMany)
			return
		}
		for _, part := range all {
			if ctx.Err() != nil {
				m.withhold("it was stopped while secret values were read")
				return
			}
			if m.add(part) {
				return
			}
		}
	}
}

// tooMany says that a limit was reached.
const tooMany = "it has read more secret values than are searched for, 20,000 or some 4 MiB; read fewer Secrets in the role"

// first returns true the first time that it is called for a value, unless all text is withheld.
func (m *Masker) first(value string) bool {
	digest := sha256.Sum256([]byte(value))
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[digest]; known || m.withheld != "" {
		return false
	}
	if m.seen == nil {
		m.seen = map[[sha256.Size]byte]struct{}{}
	}
	m.seen[digest] = struct{}{}
	return true
}

// add hides one value, and reports whether all text is withheld.
func (m *Masker) add(value string) (withheld bool) {
	if m.exempt[value] || strings.Contains(commonWords, " "+value+" ") || len(normal(value, asIs)) < minValue {
		return false
	}
	found := forms(value)
	m.mu.Lock()
	if m.patterns == nil && m.withheld == "" {
		m.patterns = newIndex()
	}
	full := false
	if x := m.patterns; x != nil {
		before := x.size
		for _, p := range found {
			if len(p.text) >= minValue {
				x.insert(p)
			}
		}
		if x.size > before {
			m.values++
		}
		full = x.size > maxPatterns || m.values > maxValues
	}
	withheld = m.withheld != ""
	m.mu.Unlock()
	if full {
		m.withhold(tooMany)
	}
	return withheld || full
}

// Mask returns text with the values hidden. If the text was cut, as an ellipsis at its
// end shows, the beginning of a value at its end is hidden, too.
func (m *Masker) Mask(text string) string {
	return m.mask(text, edges{end: strings.HasSuffix(text, ellipsis)})
}

// MaskTail is like Mask, for text whose beginning is missing: the end of a value
// at its start is hidden, too.
func (m *Masker) MaskTail(text string) string {
	return m.mask(text, edges{start: true, end: strings.HasSuffix(text, ellipsis)})
}

// ellipsis is the end of a text that was cut at a limit.
const ellipsis = "…"

func (m *Masker) mask(text string, cut edges) string {
	if m == nil || text == "" {
		return text
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.withheld != "" {
		return Replacement
	}
	if m.patterns == nil {
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
