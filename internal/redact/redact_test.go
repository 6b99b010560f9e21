package redact

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/rolewright/rolewright/test/must"
)

// encodings are the forms in which a value may be printed.
var encodings = map[string]func(string) string{
	"plain":      func(s string) string { return s },
	"base64":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"inside base64, after one byte": func(s string) string {
		return base64.StdEncoding.EncodeToString([]byte("u" + s + ":x"))
	},
	"inside base64, after two bytes": func(s string) string {
		return base64.StdEncoding.EncodeToString([]byte("u:" + s))
	},
	"base64 in lines": func(s string) string {
		text := base64.StdEncoding.EncodeToString([]byte("some text before it " + s + " and after it"))
		var lines []string
		for len(text) > 16 {
			lines, text = append(lines, text[:16]), text[16:]
		}
		return strings.Join(append(lines, text), "\r\n")
	},
	"query":            url.QueryEscape,
	"path":             url.PathEscape,
	"query, lower hex": func(s string) string { return lowerHex(url.QueryEscape(s)) },
	"base64 in query":  func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"JSON":             func(s string) string { return quoted(s) },
	"JSON in JSON":     func(s string) string { return quoted(quoted(s)) },
	"ASCII":            strconv.QuoteToASCII,
	"Python, YAML":     latin1,
	"bytes of Python":  func(s string) string { return escapedBytes(s, `\x%02x`) },
	"octal of a shell": func(s string) string { return "$'" + escapedBytes(s, `\%03o`) + "'" },
	"shell":            func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" },
	"bash":             func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"YAML":             func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" },
	"colours":          func(s string) string { return "\x1b[0;31m" + s[:3] + "\x1b[0m" + s[3:] },
	"wrapped":          func(s string) string { return s[:5] + "\r\n    " + s[5:] },
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// latin1 escapes like Python's ascii and like PyYAML: \xNN is one character.
func latin1(s string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(s, `\`, `\\`) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02X`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

func escapedBytes(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ReplaceAll(s, `\`, `\\`)) {
		if c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, format, c)
		}
	}
	return b.String()
}

// values have every sort of character.
var values = map[string]string{
	"a word":         "hunter22",
	"symbols":        `p@s-s_w+o/r=d%41&<>"'\n$`,
	"words":          "correct horse battery staple",
	"not ASCII":      "pässwörd🙂x",
	"Latin":          "pässwörd-ü123",
	"a percentage":   "abc%20def",
	"an odd escape":  `abc\u0041def`,
	"digits":         "31415926",
	"a tab":          "first\tsecond",
	"ends in break":  "hunter22\n",
	"dashes in it":   "--abc--def__ghi",
	"a long one":     strings.Repeat("0123456789abcdefghijk", 40),
	"base64 already": "aGVsbG8gd29ybGQhIQ==",
}

func TestMask_HidesEveryFormOfEveryValue(t *testing.T) {
	for what, value := range values {
		for form, encode := range encodings {
			t.Run(what+", "+form, func(t *testing.T) {
				m := New()
				m.Add(t.Context(), value)
				encoded := encode(strings.TrimSpace(value))
				for _, place := range []string{"%s", "before %s after", "key=%s;", "%s%s", "100%%%s", `dir\%s`, "(%s)"} {
					n := strings.Count(place, "%s")
					args := make([]any, n)
					for i := range args {
						args[i] = encoded
					}
					text := fmt.Sprintf(place, args...)
					got := m.Mask(text)
					if !strings.Contains(got, Replacement) {
						t.Errorf("%q is not masked: %q", text, got)
					}
					for other, encode := range encodings {
						if leaked := encode(strings.TrimSpace(value)); strings.Contains(got, leaked) {
							t.Errorf("%s is left of %q: %q", other, text, got)
						}
					}
				}
			})
		}
	}
}

func TestMask_LeavesTheRestAlone(t *testing.T) {
	m := New("sample")
	m.Add(t.Context(), "hunter22", "sample", "default", "short", "a b c d", "", "true", "localhost")
	for text, want := range map[string]string{
		"": "", "nothing of it": "nothing of it",
		"sample in default is short, true: a b c d on localhost": "sample in default is short, true: a b c d on localhost",
		"user=hunter22 at 10:00\n  next line":                    "user=[masked] at 10:00\n  next line",
		"hunter2":                                                "hunter2",
		"a hunter22 and\nhunter22":                               "a [masked] and\n[masked]",
		"first hunter22-hunter22":                                "first [masked]-[masked]",
	} {
		if got := m.Mask(text); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMask_HidesPartsOfAValue(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
	for what, tc := range map[string]struct{ value, text, secret string }{
		"a line":                  {key, "it is hkiG9w0BAQEFAASC", "hkiG9w0BAQEFAASC"},
		"a variable of a file":    {"USER=admin\nexport PASSWORD=\"tops3cret\"\n", "with tops3cret", "tops3cret"},
		"a token of a kubeconfig": {"users:\n- name: u\n  user:\n    token: abcdefghij\n", "with abcdefghij", "abcdefghij"},
		"a Docker password":       {`{"auths":{"registry.example.com":{"username":"u","password":"d0cker-pw"}}}`, "as d0cker-pw", "d0cker-pw"},
		"of a URL":                {"postgres://app:dbpass99@db.example.com/app", "with dbpass99", "dbpass99"},
		"of a URL with an @":      {"postgres://app:db@pass99@db.example.com/app", "with db@pass99", "db@pass99"},
		"of a URL in a line":      {"USER=app\nDSN=postgres://app:db%24pass99@db/app\n", "with db$pass99", "db$pass99"},
		"a list in JSON":          {`[{"user":"a","password":"list1pass"}]`, "with list1pass", "list1pass"},
		"a number in JSON":        {`{"pin":31415926}`, "with 31415926", "31415926"},
		"several texts of JSON":   {"{\"a\": \"first1pass\"}\n{\"a\": \"second2pass\"}\n", "with second2pass", "second2pass"},
		"a key in JSON":           {`{"key":` + quoted(key) + `}`, "it is hkiG9w0BAQEFAASC", "hkiG9w0BAQEFAASC"},
		"a mapping in a line":     {"db: {user: app, password: flow1pass}\nother: x\n", "with flow1pass", "flow1pass"},
		"a list in a line":        {"passwords: [one1pass, two2pass]\n", "with two2pass", "two2pass"},
		"nothing but a mapping":   {"{user: app, password: flow1pass}", "with flow1pass", "flow1pass"},
		"JSON in YAML":            {"config: |\n  {\"password\": \"inner1pass\"}\n", "with inner1pass", "inner1pass"},
		"a second document":       {"---\na: b\n---\nc: [doc2pass]\n", "with doc2pass", "doc2pass"},
		"before a comment":        {"password: before1pass  # since May\n", "with before1pass", "before1pass"},
		"before a ; in INI":       {"[client]\npassword = before1pass ; since May\n", "with before1pass", "before1pass"},
		"of INI":                  {"[client]\npassword = ini1pass\n", "with ini1pass", "ini1pass"},
		"of TOML":                 {"password = \"toml1pass\"\n", "with toml1pass", "toml1pass"},
		"a tagged value":          {"password: !unsafe tag1pass\n", "with tag1pass", "tag1pass"},
		"an escape in YAML":       {`password: "esc\x31pass"`, "with esc1pass", "esc1pass"},
		"folded lines":            {"password: >-\n  folded1\n  pass\n", "with folded1 pass", "folded1 pass"},
	} {
		m := New()
		m.Add(t.Context(), tc.value)
		if got := m.Mask(tc.text); strings.Contains(got, tc.secret) {
			t.Errorf("%s: %q", what, got)
		}
		if got := m.Mask("-----BEGIN KEY-----"); got != "-----BEGIN KEY-----" {
			t.Errorf("%s: where a key begins is hidden: %q", what, got)
		}
	}
}

func TestMask_HidesWhatACutLeavesOfAValue(t *testing.T) {
	const value = "correct-horse-battery-staple"
	m := New()
	m.Add(t.Context(), value)
	for n := window; n < len(value); n++ {
		if got := m.Mask("text " + value[:n] + ellipsis); strings.Contains(got, value[:window]) || !strings.HasSuffix(got, ellipsis) {
			t.Errorf("%d bytes before the cut: %q", n, got)
		}
		if got := m.MaskTail(value[n-window:] + " text"); strings.Contains(got, value[len(value)-window:]) {
			t.Errorf("from byte %d: %q", n-window, got)
		}
	}
	if got := m.Mask("nothing is c" + ellipsis); got != "nothing is c"+ellipsis {
		t.Errorf("cut text without a value: %q", got)
	}
}

func TestReader_HidesValuesAcrossReads(t *testing.T) {
	m := New()
	for _, v := range values {
		m.Add(t.Context(), v)
	}
	var in strings.Builder
	for i := range 400 {
		for what, v := range values {
			fmt.Fprintf(&in, "line %d %s: %s %s\r\n", i, what, v, encodings["inside base64, after one byte"](v))
		}
	}
	for name, from := range map[string]io.Reader{
		"at once": strings.NewReader(in.String()), "halves": iotest.HalfReader(strings.NewReader(in.String())),
		"late end": iotest.DataErrReader(strings.NewReader(in.String())),
	} {
		out := must.Get(io.ReadAll(m.Reader(from)))(t)
		for what, v := range values {
			for form, encode := range encodings {
				if bytes.Contains(out, []byte(encode(strings.TrimSpace(v)))) {
					t.Errorf("%s: %s, %s, is left", name, what, form)
				}
			}
		}
		if n := bytes.Count(out, []byte("\nline ")); n != 400*len(values)-1 {
			t.Errorf("%s: %d lines are left of %d", name, n+1, 400*len(values))
		}
	}
	if out, err := io.ReadAll(iotest.OneByteReader(m.Reader(iotest.OneByteReader(strings.NewReader("x hunter22 y"))))); err != nil || string(out) != "x [masked] y" {
		t.Errorf("byte by byte: %q, %v", out, err)
	}
}

// TestReader_HoldsBoundedMemory: the reader does not wait for ever for the end of a text that looks like the beginning of
// a value.
func TestReader_HoldsBoundedMemory(t *testing.T) {
	m := New()
	m.Add(t.Context(), "hunter22")
	r := &reader{m: m, from: io.MultiReader(strings.NewReader("hunt"), strings.NewReader(strings.Repeat(" ", 4<<20)), strings.NewReader("er22"))}
	most := 0
	var out bytes.Buffer
	for buf := make([]byte, 4096); ; {
		n, err := r.Read(buf)
		out.Write(buf[:n])
		most = max(most, len(r.in))
		if err != nil {
			break
		}
	}
	if most > 200<<10 || strings.Contains(out.String(), "hunt") {
		t.Errorf("%d bytes held; output of %d bytes", most, out.Len())
	}
}

func TestWithhold_HidesEverything(t *testing.T) {
	m := New()
	m.Add(t.Context(), "hunter22")
	m.Withhold()
	m.Add(t.Context(), "hunter23")
	if got := m.Mask("any text"); got != Replacement {
		t.Errorf("Mask = %q", got)
	}
	if out, err := io.ReadAll(m.Reader(strings.NewReader("any\ntext"))); err != nil || string(out) != Replacement+"\n" {
		t.Errorf("Reader: %q, %v", out, err)
	}
}

// If two requests of a run read a Secret at once, neither gets its answer before the values are hidden.
func TestAdd_ReturnsWhenTheValuesAreHidden(t *testing.T) {
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf("a secret line %05d", i))
	}
	value, last := strings.Join(lines, "\n"), lines[len(lines)-1]
	m := New()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m.Add(t.Context(), value)
			if got := m.Mask(last); strings.Contains(got, last) {
				t.Errorf("%q is shown", got)
			}
		})
	}
	wg.Wait()
}

func TestAdd_WithholdsWhatIsTooMuch(t *testing.T) {
	numbered := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("value%05d", i)
		}
		return all
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var large []string
	for i := range 20 {
		large = append(large, strings.Repeat(strconv.Itoa(i)+"x", 1<<20))
	}
	for name, tc := range map[string]struct {
		ctx    context.Context
		values []string
		want   string
	}{
		"many values":             {t.Context(), numbered(maxValues + 1), tooMany},
		"as many as there may be": {t.Context(), numbered(maxValues), ""},
		"lines of a value":        {t.Context(), []string{strings.Join(numbered(maxValues+1), "\n")}, tooMany},
		"the same line":           {t.Context(), []string{strings.Repeat("value\n", maxParts+1) + "another"}, tooMany},
		"texts of JSON":           {t.Context(), []string{`{"a":["` + strings.Join(numbered(maxParts+1), `","`) + `"]}`}, tooMany},
		"large values":            {t.Context(), large, tooMany},
		"a run that has ended":    {ended, []string{"hunter22"}, "it was stopped while secret values were read"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New()
			m.Add(tc.ctx, tc.values...)
			if m.Withheld() != tc.want || (m.Mask("any text") == Replacement) != (tc.want != "") {
				t.Errorf("withheld because %q, want %q; text: %q", m.Withheld(), tc.want, m.Mask("any text"))
			}
			if got := m.Mask(tc.values[len(tc.values)-1]); got != Replacement {
				t.Errorf("the last value is shown: %.80q", got)
			}
		})
	}
}

// TestSearch_CostsAFewLookUpsForEachByte, whatever values and text have in common.
func TestSearch_CostsAFewLookUpsForEachByte(t *testing.T) {
	a := strings.Repeat("a", 1<<16)
	for name, value := range map[string]func(i int) string{
		"a short common beginning": func(i int) string { return fmt.Sprintf("aaaa%05d", i) },
		"a long one":               func(i int) string { return a[:100] + strconv.Itoa(i) },
		"of every length":          func(i int) string { return a[:6+i] + "b" },
		"of distant lengths":       func(i int) string { return a[:32<<(i%11)] + strconv.Itoa(i) },
		"nothing but that":         func(i int) string { return a[:6+i] },
	} {
		m := New()
		for i := range 1000 {
			m.Add(t.Context(), value(i))
		}
		for what, text := range map[string]string{"of a": a, "of values": strings.Repeat(value(0)+value(999)+value(500), 20)} {
			l := &lookup{x: m.patterns, text: normal(text, asIs)}
			l.search(edges{})
			if most := 32 * len(l.text); l.steps > most {
				t.Errorf("%s: %d look-ups in %d bytes of text %s, want at most %d", name, l.steps, len(l.text), what, most)
			}
		}
	}
}

// A search finds every pattern, however many were inserted before or after it.
func TestSearch_FindsEachOfMany(t *testing.T) {
	x := newIndex()
	for i := range 3000 {
		x.insert(pattern{text: fmt.Sprintf("%06x-and-more", i)})
		for _, at := range []int{0, i / 2, i} {
			text := fmt.Sprintf("before %06x-and-more after", at)
			if spans, _ := (&lookup{x: x, text: []byte(text)}).search(edges{end: true}); len(spans) != 1 {
				t.Fatalf("of %d patterns, %q is not found: %v", i+1, text, spans)
			}
		}
	}
}

// TestSearch_FindsWhatIsThere compares the search with a slow and simple one.
func TestSearch_FindsWhatIsThere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(most int) string {
		b := make([]byte, minValue+random.IntN(most))
		for i := range b {
			b[i] = "ab"[random.IntN(2)]
		}
		return string(b)
	}
	for range 2000 {
		x, patterns := newIndex(), []string{}
		for range 1 + random.IntN(8) {
			patterns = append(patterns, word(long-minValue)) // below long, the search is exact
			x.insert(pattern{text: patterns[len(patterns)-1]})
		}
		text := word(60) + patterns[0] + word(10) + patterns[len(patterns)-1]
		want, got := make([]byte, len(text)), make([]byte, len(text))
		for _, p := range patterns {
			for i := range text {
				if strings.HasPrefix(text[i:], p) {
					copy(want[i:], strings.Repeat("x", len(p)))
				}
			}
		}
		spans, open := (&lookup{x: x, text: []byte(text)}).search(edges{end: true})
		for _, s := range spans {
			copy(got[s.from:s.to], strings.Repeat("x", s.to-s.from))
		}
		begun := len(text)
		for i := len(text) - window; i > 0; i-- {
			if slices.ContainsFunc(patterns, func(p string) bool { return len(p) > len(text)-i && strings.HasPrefix(p, text[i:]) }) {
				begun = i
			}
		}
		if string(want) != string(got) || open > begun {
			t.Fatalf("%q in %q:\n%q, want\n%q; one is open at %d, want %d at most", patterns, text, got, want, open, begun)
		}
	}
}

func TestMasker_NilAndZeroChangeNothing(t *testing.T) {
	var none *Masker
	none.Add(t.Context(), "hunter22")
	none.Withhold()
	for _, m := range []*Masker{none, {}} {
		if got := m.Mask("hunter22 \x1b[0m"); got != "hunter22 \x1b[0m" {
			t.Errorf("Mask = %q", got)
		}
		if out, err := io.ReadAll(m.Reader(strings.NewReader("hunter22"))); err != nil || string(out) != "hunter22" {
			t.Errorf("Reader: %q, %v", out, err)
		}
	}
}

// FuzzMask: neither a value nor one of its encodings is left, whatever the value and the text around it are, with Mask and
// with Reader.
func FuzzMask(f *testing.F) {
	for _, v := range values {
		f.Add(v, "before ", " after")
	}
	f.Add("%41%42%43%44", "%", "%")
	f.Add(`\u0041\u0042`, `\`, "\x1b[")
	f.Add("aaaaaaaaa", "aaaa", "aaaa")
	f.Fuzz(func(t *testing.T, value, before, after string) {
		m := New()
		m.Add(t.Context(), value)
		trimmed := strings.TrimSpace(value)
		if len(normal(trimmed, asIs)) < minValue || strings.Contains(commonWords, " "+value+" ") ||
			strings.Contains(Replacement, trimmed) || strings.Contains(trimmed, "\x1b") {
			t.Skip()
		}
		for form, text := range map[string]string{
			"plain": trimmed, "base64": base64.StdEncoding.EncodeToString([]byte(trimmed)), "query": url.QueryEscape(trimmed),
		} {
			whole := before + text + after
			masked := m.Mask(whole)
			streamed := must.Get(io.ReadAll(m.Reader(iotest.HalfReader(strings.NewReader(whole)))))(t)
			for how, got := range map[string]string{"Mask": masked, "Reader": string(streamed)} {
				if !strings.Contains(got, Replacement) {
					t.Errorf("%s: %s of %q in %q is left: %q", how, form, value, whole, got)
				}
				if strings.Contains(strings.ReplaceAll(got, Replacement, "\x00"), text) {
					t.Errorf("%s: %s of %q is left: %q", how, form, value, got)
				}
			}
		}
	})
}

// A list of many small numbers does not make the output withheld.
func TestMask_ManyNumbers(t *testing.T) {
	for _, sign := range []string{"[%s]", "a: [%s]"} {
		m := New()
		m.Add(t.Context(), fmt.Sprintf(sign, strings.Repeat("12, ", 30_000)+"34"))
		if got := m.Mask("a text"); got != "a text" {
			t.Errorf("%.10s: %q", sign, got)
		}
	}
}
