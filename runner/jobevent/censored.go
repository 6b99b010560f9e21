package jobevent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// ansible-core 2.19 prints the message of a failed task in a block of its own,
// "[ERROR]: Task failed: …", before the line with the result. It prints the block
// even for tasks with no_log, whose result is censored.
var (
	errorBlock = regexp.MustCompile(`^(?:\x1b\[[0-9;]*m)*\[ERROR\]: `)
	resultLine = regexp.MustCompile(`^(?:\x1b\[[0-9;]*m)*(?:fatal|failed): \[`)
	// With verbosity 3, and in YAML, a result has several lines: the first does not end it.
	resultEnd    = regexp.MustCompile(`\}(?:\x1b\[[0-9;]*m)*\s*$`)
	censoredLine = regexp.MustCompile(`^(?:\x1b\[[0-9;]*m)*\s*"?censored"?: `)
	closingLine  = regexp.MustCompile(`^(?:\x1b\[[0-9;]*m)*\}`)
	bannerLine   = regexp.MustCompile(`^(?:\x1b\[[0-9;]*m)*(?:TASK|PLAY|PLAY RECAP|RUNNING HANDLER) [\[*]`)
)

// WithoutCensored returns the event of a task with no_log without the output
// before its censored result, and any other event unchanged.
func WithoutCensored(e Event) Event {
	var res struct {
		Censored *any `json:"censored"`
	}
	if !bytes.Contains(e.Data.Res, []byte(`"censored"`)) || json.Unmarshal(e.Data.Res, &res) != nil || res.Censored == nil {
		return e
	}
	lines := strings.SplitAfter(e.Stdout, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if resultLine.MatchString(lines[i]) {
			e.Stdout = strings.Join(lines[i:], "")
			return e
		}
	}
	if len(lines) > 1 || errorBlock.MatchString(e.Stdout) {
		e.Stdout = "" // cut before the result
	}
	return e
}

const (
	// maxBlock bounds the bytes held back of a block until its result tells whether it is censored.
	maxBlock = 256 << 10
	// maxResult bounds the bytes held back of a result of several lines until it is known to be censored: a censored
	// result contains little else.
	maxResult = 4 << 10
)

// CensoredReader returns the output of ansible-playbook without the error blocks
// whose results are censored. It cuts other blocks at 256 KiB.
func CensoredReader(r io.Reader) io.Reader {
	return &censoredReader{in: bufio.NewReaderSize(r, maxString)}
}

type censoredReader struct {
	in *bufio.Reader
	// block is held back while inBlock, and result, the lines of the result after it, while inResult; out is ready to be
	// read.
	block, result, out []byte
	inBlock, inResult  bool
	// begun is true in the middle of a line that is longer than the buffer.
	begun bool
	err   error
}

// Read implements [io.Reader].
func (c *censoredReader) Read(p []byte) (int, error) {
	for len(c.out) == 0 && c.err == nil {
		line, err := c.in.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		c.line(line)
		c.begun = !whole
		if err != nil && whole {
			c.err = err
			c.release()
		}
	}
	if len(c.out) == 0 {
		return 0, c.err
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// release moves what is held back to out.
func (c *censoredReader) release() {
	c.out = append(append(c.out, c.block...), c.result...)
	c.block, c.result, c.inBlock, c.inResult = nil, nil, false, false
}

func (c *censoredReader) line(line []byte) {
	if !c.begun {
		result := resultLine.Match(line)
		switch {
		case result && bytes.Contains(line, []byte(`"censored"`)):
			c.block, c.result = nil, nil
			c.release()
		case c.inResult && censoredLine.Match(line):
			c.block = nil
			c.release()
		case result && c.inBlock && !c.inResult && !resultEnd.Match(line):
			c.inResult = true
		case result, bannerLine.Match(line):
			c.release()
		case errorBlock.Match(line):
			c.release()
			c.inBlock = true
		}
	}
	switch {
	case c.inResult:
		if c.result = append(c.result, line...); closingLine.Match(line) || len(c.result) > maxResult {
			c.release()
		}
	case !c.inBlock:
		c.out = append(c.out, line...)
	case len(c.block)+len(line) <= maxBlock:
		c.block = append(c.block, line...)
	}
}
