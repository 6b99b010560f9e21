package eventlog

import "github.com/rolewright/rolewright/internal/text"

// Bounds in bytes of what is logged of an event: enough for any message that
// people read, and little enough for log collectors, which cut or drop entries
// of some hundred kilobytes.
const (
	maxField = 16 << 10
	maxBlock = 64 << 10
)

// shown returns what a terminal shows of s, cut to about limit bytes. Carriage
// returns are those of the pty.
func shown(s string, limit int) string {
	kept := text.Cut(s, limit)
	if kept = text.Uncoloured(kept); len(s) > limit {
		kept += "…"
	}
	return kept
}
