package text

import (
	"testing"
	"unicode/utf8"
)

func TestPlain(t *testing.T) {
	for _, tt := range []struct{ in, plain, uncoloured string }{
		{"", "", ""},
		{"a\tb\nc", "a\tb\nc", "a\tb\nc"},
		{"\x1b[0;31mERROR! no\x1b[0m\r\n", "ERROR! no\n", "ERROR! no\n"},
		{"\x1b]0;title\x07a\x1b[2Kb\x1bMc", "abc", "]0;titleabMc"},
		{"\x1b]8;;http://x\x1b\\link", "link", "]8;;http://x\\link"},
		{"\x1b]never ended", "never ended", "]never ended"},
		{"a\x00b\x7fc\u0085d", "abcd", "abcd"},
		{"a\u202eb\u2066c", "abc", "abc"},
		{"a\xff\xfeb", "a\ufffdb", "a\ufffdb"},
		{"\x1b", "", ""},
		{"\x1b[", "", ""},
	} {
		if got := Plain(tt.in); got != tt.plain {
			t.Errorf("Plain(%q) = %q, want %q", tt.in, got, tt.plain)
		}
		if got := Uncoloured(tt.in); got != tt.uncoloured {
			t.Errorf("Uncoloured(%q) = %q, want %q", tt.in, got, tt.uncoloured)
		}
	}
}

func TestClip_KeepsWholeCharacters(t *testing.T) {
	const s = "aé日本 text"
	for limit := range len(s) + 2 {
		if got := Clip(s, limit); !utf8.ValidString(got) || len(got) > max(limit, len(ellipsis)) || limit >= len(s) && got != s {
			t.Errorf("Clip(%d) = %q", limit, got)
		}
		if got := Cut(s, limit); !utf8.ValidString(got) || len(got) > limit || len(got) < min(limit-3, len(s)) {
			t.Errorf("Cut(%d) = %q", limit, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"role", "playbook", "snakeCaseParameters"}
	for word, want := range map[string]string{
		"rolle": "role", "PLAYBOK": "playbook", "orle": "role", "snakeCaseParameter": "snakeCaseParameters", "zzzz": "", "": "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
