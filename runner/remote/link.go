package remote

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// ErrGivenUp is returned if the operator does not know the run, or another Pod makes it.
var ErrGivenUp = errors.New("the operator has given up this run")

// link is the container's side of the connection to the [Hub].
type link struct {
	in     Input
	pod    string
	client *http.Client

	// epoch, have and reports are from the last answer of the operator: see [holding].
	epoch string
	have  int
	// sent are the events beyond have that the operator of this epoch has.
	sent map[string]bool
	// reports is how many bytes of the command's reports the operator has.
	reports int64
}

func newLink(in Input, pod string, say func(text string)) (*link, error) {
	dial, err := dialOperator(in, say)
	if err != nil {
		return nil, err
	}
	return &link{in: in, pod: pod, sent: map[string]bool{}, client: &http.Client{
		Transport: &http.Transport{DialTLSContext: dial, MaxIdleConnsPerHost: 1},
		Timeout:   5 * time.Minute, // for one batch
	}}, nil
}

// post repeats a request until the operator answers; the error wraps [ErrGivenUp] if the answer is a refusal. body is
// called for each attempt.
func (l *link) post(ctx context.Context, at string, body func() io.Reader) error {
	var d time.Duration
	for {
		err := l.postOnce(ctx, at, body())
		if err == nil || errors.Is(err, ErrGivenUp) || errors.Is(err, errNewEpoch) {
			return err
		}
		if !pause(ctx, &d) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// nothing returns an empty body.
func nothing() io.Reader { return http.NoBody }

func (l *link) postOnce(ctx context.Context, at string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.in.URL+at+"?"+url.Values{podParameter: {l.pod}, epochParameter: {l.epoch}}.Encode(), body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGivenUp, err)
	}
	req.Header.Set("Authorization", "Bearer "+l.in.Token)
	resp, err := l.client.Do(req)
	if err != nil {
		l.client.CloseIdleConnections() // ends the dial, which goes on without the request, beside that of the next one
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	switch {
	case resp.StatusCode >= 500:
		return fmt.Errorf("the operator answers %d: %s", resp.StatusCode, said)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: it answers %d: %s", ErrGivenUp, resp.StatusCode, said)
	case err != nil:
		return err
	}
	var h holding
	if err := json.Unmarshal(said, &h); err != nil {
		return fmt.Errorf("the operator's answer: %w", err)
	}
	l.reports = h.Reports
	if h.Epoch != l.epoch {
		l.epoch, l.have = h.Epoch, h.Have
		clear(l.sent)
		if at == filesPath {
			return errNewEpoch
		}
	}
	return nil
}

// errNewEpoch says that there is a new operator process, which may lack what the one before had.
var errNewEpoch = errors.New("the operator has started again")

// batchSize is how many bytes are sent at a time, unless one file is larger.
const batchSize = 1 << 20

// batch is an archive of files for one request.
type batch struct {
	buffer bytes.Buffer
	files  *tar.Writer
	names  []string
}

func newBatch() *batch {
	b := &batch{}
	b.files = tar.NewWriter(&b.buffer)
	return b
}

func (b *batch) add(name string, data []byte) error {
	if err := b.files.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o600}); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	if _, err := b.files.Write(data); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	b.names = append(b.names, name)
	return nil
}

// send sends a batch, and notes that the operator has its files.
func (l *link) send(ctx context.Context, b *batch) error {
	if err := b.files.Close(); err != nil {
		return fmt.Errorf("pack the artifacts: %w", err)
	}
	if err := l.post(ctx, filesPath, func() io.Reader { return bytes.NewReader(b.buffer.Bytes()) }); err != nil {
		return err
	}
	for _, name := range b.names {
		l.sent[name] = true
	}
	return nil
}

// events sends the events and reports that the operator lacks. It sends a request in any case, because the
// answer tells whether the run is to go on.
func (l *link) events(ctx context.Context) error {
	names, err := l.missing()
	if err != nil {
		return err
	}
	b, sent := newBatch(), false
	for _, name := range names {
		data, err := plainfile.Read(filepath.Join(l.artifacts(), filepath.FromSlash(name)), fileLimit)
		if err != nil {
			l.sent[name] = true // no file, or one that the operator would not read
			continue
		}
		if err := b.add(name, data); err != nil {
			return err
		}
		if b.buffer.Len() >= batchSize {
			if err := l.send(ctx, b); err != nil {
				return err
			}
			b, sent = newBatch(), true
		}
	}
	if piece := l.reported(); len(piece) > 0 {
		if err := b.add(reportsDir+strconv.FormatInt(l.reports, 10), piece); err != nil {
			return err
		}
	}
	if len(b.names) > 0 || !sent {
		return l.send(ctx, b)
	}
	return nil
}

// reported returns the reports of the command that the operator lacks. It returns none if the file cannot be
// read: then it was removed or replaced, for which the Runner stops the run.
func (l *link) reported() []byte {
	if l.in.Request.Command == nil {
		return nil
	}
	file, err := plainfile.Open(filepath.Join(l.artifacts(), runner.ReportsFile))
	if err != nil {
		return nil
	}
	defer file.Close()
	piece, err := io.ReadAll(io.NewSectionReader(file, l.reports, reportsLimit-l.reports))
	if err != nil {
		return nil
	}
	return piece
}

// fileLimit is more bytes than the operator would read of an event's file.
const fileLimit = 64 << 20

func (l *link) artifacts() string {
	return filepath.Join(l.in.Request.Dir, "artifacts", l.in.Request.ID)
}

// missing returns the names of the events to send, in the order of their counters.
func (l *link) missing() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.artifacts(), "job_events"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the events: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name := eventsDir + entry.Name()
		if n, ok := counterOf(entry.Name()); ok && n > l.have && !l.sent[name] {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		m, _ := counterOf(path.Base(a))
		n, _ := counterOf(path.Base(b))
		return cmp.Compare(m, n)
	})
	return names, nil
}

// finish sends what is left, and the outcome, until the operator has all of it.
func (l *link) finish(ctx context.Context, o runner.Outcome) error {
	for {
		err := l.all(ctx, o)
		if !errors.Is(err, errNewEpoch) {
			return err
		}
	}
}

func (l *link) all(ctx context.Context, o runner.Outcome) error {
	if err := l.events(ctx); err != nil {
		return err
	}
	artifacts, private := lastFiles()
	b := newBatch()
	for _, file := range slices.Concat(pathsIn(l.artifacts(), artifacts), pathsIn(l.in.Request.Dir, private)) {
		if err := l.last(ctx, b, file); err != nil {
			return err
		}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode the outcome: %w", err)
	}
	if err := b.add(runner.OutcomeFile, data); err != nil {
		return err
	}
	return l.send(ctx, b)
}

func pathsIn(dir string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(dir, name)
	}
	return paths
}

// last adds a file, if it exists, to a batch. A file that is too large for a batch is sent by itself, without reading it
// into memory, of which the Pod may have little.
func (l *link) last(ctx context.Context, b *batch, name string) error {
	file, err := plainfile.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > batchSize {
		var broken atomic.Bool
		return l.post(ctx, filesPath, func() io.Reader {
			if broken.Load() {
				return nothing() // as if the file did not exist
			}
			return entryOf(file, &broken)
		})
	}
	data, err := io.ReadAll(io.LimitReader(file, batchSize))
	if err != nil {
		return nil // as if the file did not exist
	}
	return b.add(filepath.Base(name), data)
}

// entryOf returns an archive entry with the last fileLimit bytes of a file. It sets broken if the file cannot be read.
func entryOf(file *os.File, broken *atomic.Bool) io.Reader {
	info, err := file.Stat()
	if err != nil {
		return nothing()
	}
	size := min(info.Size(), fileLimit)
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Name: filepath.Base(file.Name()), Typeflag: tar.TypeReg, Size: size, Mode: 0o600}); err != nil {
		return nothing()
	}
	const block = 512 // an entry consists of whole blocks
	return io.MultiReader(&head, noting{io.NewSectionReader(file, info.Size()-size, size), broken}, bytes.NewReader(make([]byte, (block-size%block)%block)))
}

// noting sets broken if its reader fails.
type noting struct {
	io.Reader
	broken *atomic.Bool
}

// Read implements [io.Reader].
func (r noting) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.broken.Store(true)
	}
	return n, err
}
