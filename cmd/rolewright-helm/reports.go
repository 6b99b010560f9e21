package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the protocol.
const (
	maxEvents  = 20
	maxMessage = 4096
)

// reports is the file to which the run writes its reports.
type reports struct {
	file   *os.File
	events int
	// err is the first error of writing a line; it makes the run fail.
	err error
}

func openReports(path string) (*reports, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("ROLEWRIGHT_EVENTS: %w", err)
	}
	return &reports{file: file}, nil
}

func (r *reports) close() { _ = r.file.Close() }

func (r *reports) line(kind string, fields map[string]any) {
	fields["type"] = kind
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a diff that is full of < would be six times as long
	err := encoder.Encode(fields)
	if err == nil {
		_, err = r.file.Write(text.Bytes())
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("report: %w", err)
	}
}

func (r *reports) progress(format string, args ...any) {
	r.line("progress", map[string]any{"step": fmt.Sprintf(format, args...)})
}

// change reports a step that changes objects, with the changes.
func (r *reports) change(changes, format string, args ...any) {
	r.line("progress", map[string]any{"step": clip(fmt.Sprintf(format, args...), maxMessage), "diff": changes})
}

func (r *reports) event(kind, reason, message string) {
	if r.events++; r.events <= maxEvents {
		r.line("event", map[string]any{"eventType": kind, "reason": reason, "message": clip(message, 1000)})
	}
}

func (r *reports) condition(c condition) {
	if c.absent {
		r.line("condition", map[string]any{"conditionType": c.kind, "remove": true})
		return
	}
	r.line("condition", map[string]any{"conditionType": c.kind, "status": c.status, "reason": c.reason, "message": c.message})
}

func (r *reports) requeue(after time.Duration) {
	r.line("requeue", map[string]any{"after": after.Round(time.Second).String()})
}

func (r *reports) result(verdict, message string, changed bool) {
	r.line("result", map[string]any{"verdict": verdict, "message": clip(message, maxMessage), "changed": changed})
}

// note writes a line for people to the output of the run.
func note(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// clip shortens a text to most bytes, and makes it valid UTF-8 without NUL.
func clip(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) <= most {
		return s
	}
	s = s[:most-3]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
