package report

import (
	"bytes"
	"fmt"
)

// Problem is the error that makes the reports of a command unreliable.
type Problem struct {
	// Line is the number of the wrong line, from 1.
	Line int
	Err  error
}

// Error implements error.
func (p *Problem) Error() string { return fmt.Sprintf("line %d of the reports: %v", p.Line, p.Err) }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Reader reads lines that arrive in pieces of any size. The zero value is ready to use.
// After an error it reads nothing more.
type Reader struct {
	lines, bytes int
	rest         []byte
	problem      *Problem
}

// Read reads the next piece, and calls take for each line that the piece completes.
func (r *Reader) Read(piece []byte, take func(Report)) error {
	for len(piece) > 0 && r.problem == nil {
		end := bytes.IndexByte(piece, '\n')
		text := piece
		if end >= 0 {
			text, piece = piece[:end], piece[end+1:]
		} else {
			piece = nil
		}
		if r.bytes += len(text); end >= 0 {
			r.bytes++
		}
		r.rest = append(r.rest, text[:min(len(text), MaxLine+1-min(len(r.rest), MaxLine+1))]...)
		switch {
		case r.bytes > MaxBytes:
			r.fail(fmt.Errorf("the reports have more than %d MiB: report less", MaxBytes>>20))
		case len(r.rest) > MaxLine:
			r.fail(fmt.Errorf("it is longer than %d bytes", MaxLine))
		case r.lines >= MaxLines:
			r.fail(fmt.Errorf("there are more than %d lines: report less", MaxLines))
		case end >= 0:
			r.line(take)
		}
	}
	return r.err()
}

// line parses the line that is now complete.
func (r *Reader) line(take func(Report)) {
	report, err := parse(bytes.TrimSuffix(r.rest, []byte("\r")))
	if err != nil {
		r.fail(err)
		return
	}
	r.lines++
	report.Line = r.lines
	r.rest = r.rest[:0]
	take(report)
}

func (r *Reader) fail(err error) { r.problem = &Problem{r.lines + 1, err} }

// Close returns the error so far, or an error if the last line is not complete.
func (r *Reader) Close() error {
	if r.problem == nil && len(r.rest) > 0 {
		r.fail(fmt.Errorf("it has no end of line: whether it is whole is not known"))
	}
	return r.err()
}

func (r *Reader) err() error {
	if r.problem == nil {
		return nil
	}
	return r.problem
}
