package eventlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Finish writes the recap of the run and, with DebugLogs, its whole output. It reads
// the output from the file stdout below dir, the run's directory. It does not read a
// link, pipe or device that the run has put in the file's place.
func (l *Logger) Finish(summary jobevent.Summary, dir, stdout string) {
	recap := l.recap
	if recap == "" && summary.Complete && !l.opts.Command {
		recap = recapOf(summary.Stats)
	}
	if recap != "" && !l.opts.Lines {
		l.out.block(l.heading("Ansible Task Status Event StdOut") + recap + footing)
	}
	if !l.opts.DebugLogs {
		return
	}
	if err := l.copyOutput(dir, stdout); err != nil {
		l.log.Error(err, "Output of the run cannot be shown")
	}
}

const footing = "\n\n----------\n"

func (l *Logger) heading(what string) string {
	return fmt.Sprintf("\n----- %70s -----\n\n", what+" "+l.title)
}

// recapOf returns the counts in the form of Ansible's recap, for a run whose stats
// event came without output.
func recapOf(stats *jobevent.Stats) string {
	if stats == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nPLAY RECAP *********************************************************************")
	for _, host := range slices.Sorted(maps.Keys(stats.Processed)) {
		fmt.Fprintf(&b, "\n%-26s : ok=%-4d changed=%-4d unreachable=%-4d failed=%-4d skipped=%-4d rescued=%-4d ignored=%-4d",
			shown(host, maxField), stats.OK[host], stats.Changed[host], stats.Dark[host], stats.Failures[host],
			stats.Skipped[host], stats.Rescued[host], stats.Ignored[host])
		if b.Len() > maxBlock {
			break
		}
	}
	return shown(b.String(), maxBlock)
}

// copyOutput writes the file between a heading and a footing. Since the file may be of
// any size, it is copied in pieces of whole lines. Single lines of other loggers may
// come between the pieces, but no other blocks.
func (l *Logger) copyOutput(dir, name string) error {
	file, err := plainfile.OpenBelow(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the run did not start; its result says why
	}
	if err != nil {
		return fmt.Errorf("read the run's output: %w", err)
	}
	defer func() { _ = file.Close() }()
	content := jobevent.CensoredReader(file)
	if l.opts.Masked != nil {
		content = l.opts.Masked(content)
	}
	in := bufio.NewReaderSize(content, maxBlock)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		return nil
	}
	l.out.together(func() {
		piece := bytes.NewBufferString(l.heading("Ansible Debug Result"))
		for err == nil {
			var part []byte
			// A line that is longer than the buffer is read in parts.
			if part, err = in.ReadSlice('\n'); errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
			piece.WriteString(text.Uncoloured(string(part)))
			if piece.Len() >= maxBlock {
				_, _ = piece.WriteTo(l.out)
			}
		}
		piece.WriteString(footing)
		_, _ = piece.WriteTo(l.out)
	})
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the run's output: %w", err)
	}
	return nil
}
