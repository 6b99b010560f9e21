package runner

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Tail returns the last limit bytes of a file, without escape sequences and as
// printable as [Result.Tail] promises. If the file is longer, the tail starts at
// the beginning of a line if possible. The file must be a regular one; links are
// not followed.
func Tail(name string, limit int64) (string, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	return tailOf(f, limit, nil)
}

// tailBelow is Tail for a file in the directory of a run. The run may have put
// links there. mask hides values; nil hides nothing.
func tailBelow(dir, name string, limit int64, mask Masker) (string, error) {
	f, err := plainfile.OpenBelow(dir, name)
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	return tailOf(f, limit, mask)
}

// tailOf reads the tail of a file and closes it.
func tailOf(f *os.File, limit int64, mask Masker) (string, error) {
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	start := max(0, fi.Size()-limit)
	data, err := io.ReadAll(io.NewSectionReader(f, start, limit))
	if err != nil {
		return "", fmt.Errorf("read tail: %w", err)
	}
	tail := string(data)
	if start > 0 {
		if _, rest, ok := strings.Cut(tail, "\n"); ok && rest != "" {
			tail = rest
		}
	}
	if visible, err := io.ReadAll(jobevent.CensoredReader(strings.NewReader(tail))); err == nil {
		tail = string(visible)
	}
	tail = text.Plain(tail)
	if mask != nil {
		tail = mask.MaskTail(tail)
	}
	return tail, nil
}
