package eventlog

import "github.com/rolewright/rolewright/internal/text"

// Limits, in bytes, of what is logged of an event: enough for any message that
// people read, and little enough for log collectors, which cut or drop entries of
// a few hundred kilobytes.
const (
	maxField = 16 << 10
	maxBlock = 64 << 10
)

// shown returns what a terminal shows of s, cut to about limit bytes. It also drops the
// carriage returns, which come from the pty.
func shown(s string, limit int) string {
	kept := text.Cut(s, limit)
	if kept = text.Uncoloured(kept); len(s) > limit {
		kept += "…"
	}
	return kept
}
