package remote

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// Hub is where the containers of an operator's runs send their artifacts. It is an
// [http.Handler], safe for concurrent use.
type Hub struct {
	mu sync.Mutex
	// sessions are by the digest of their token, so that the time of the look-up tells nothing.
	sessions map[[sha256.Size]byte]*Session
	place    func(digest [sha256.Size]byte) Place
}

// Place is where a run is that a [Hub] does not have.
type Place int

const (
	Nowhere   Place = iota // its container is told to end it
	Later                  // it will be admitted here
	Elsewhere              // another operator behind the same address has it
)

// NewHub returns a Hub without runs; place tells where one is whose token has a digest.
func NewHub(place func(digest [sha256.Size]byte) Place) *Hub {
	return &Hub{sessions: map[[sha256.Size]byte]*Session{}, place: place}
}

// Session is a run whose artifacts are received.
type Session struct {
	// Started is closed when the container has got leave to start the run, and Done when all
	// artifacts and the outcome are there.
	Started, Done chan struct{}
	// Told has the names of events that were received, unless it is full, and a value at first and after reports were.
	Told chan string

	hub    *Hub
	digest [sha256.Size]byte
	id     string
	of     string // the UID of the object
	dir    *os.Root
	limit  int64
	epoch  string
	// adopted is true for a run that another operator has begun, maybe.
	adopted bool

	// receiving is held while a container sends, and guards what follows.
	receiving sync.Mutex
	pod       string
	have      int
	reports   int64 // -1 for a run of Ansible
	bytes     int64
	over      bool

	mu      sync.Mutex
	reader  *http.ResponseController // of the request in progress
	closed  bool
	trouble error
	heard   time.Time
}

const (
	// told is how many events may wait until they are read; for more of them, their directory is listed.
	told = 64
	// sendTimeout is how long a container may take to send one request.
	sendTimeout = 5 * time.Minute
	// A file takes whole blocks of the disk, and a place in its directory.
	blockBytes = 4096
	fileBytes  = 512
)

// taken is what a file of a size takes of the disk, at least, in bytes.
func taken(size int64) int64 {
	return (size+blockBytes-1)/blockBytes*blockBytes + fileBytes
}

// reading bounds the time for the request that is received from now on; nil is none.
func (s *Session) reading(c *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader = c
	if c == nil {
		return
	}
	until := time.Now().Add(sendTimeout)
	if s.closed {
		until = time.Now()
	}
	_ = c.SetReadDeadline(until) // where there is none, as in tests, nothing is slow
}

// Admit receives the artifacts of the run of req into its directory, which [runner.CreateMirror]
// has made. pod is the one that makes the run; empty for the first that asks. It may send twice
// the bytes that the run may write: all of it once more.
func (h *Hub) Admit(req runner.Request, pod string) (*Session, error) {
	dir, err := plainfile.OpenDir(req.Dir)
	if err != nil {
		return nil, fmt.Errorf("receive the artifacts of run %s: %w", req.ID, err)
	}
	s := &Session{
		Started: make(chan struct{}), Done: make(chan struct{}), Told: make(chan string, told), hub: h, digest: sha256.Sum256([]byte(req.JobRun.Token)), id: req.ID, of: req.JobRun.Subject, dir: dir,
		limit: 2 * req.MaxBytes, epoch: uuid.NewString(), pod: pod, adopted: req.JobRun.Adopted,
	}
	if pod != "" {
		s.hear()
		close(s.Started)
	}
	if err := s.readHave(req.Content.Command != nil); err != nil {
		_ = dir.Close()
		return nil, err
	}
	s.tell("")
	if _, err := dir.Lstat(runner.OutcomeFile); err == nil {
		s.over = true
		close(s.Done)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[s.digest] = s
	return s, nil
}

// Recorded tells the container of a run that the end is recorded, if all of it was received: until then it keeps
// the artifacts, for an operator that adopts the run after this one. The run has to be of the object, if one is given.
func (h *Hub) Recorded(id, uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sessions, func(_ [sha256.Size]byte, s *Session) bool {
		return s.id == id && (uid == "" || s.of == uid) && s.finished()
	})
}

// Close ends the reception, and waits until nothing is received any more. The container is told
// to end the run, unless it has sent all of it: see [Hub.Recorded].
func (s *Session) Close() {
	s.hub.mu.Lock()
	if !s.finished() {
		delete(s.hub.sessions, s.digest)
	}
	s.hub.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	if s.reader != nil {
		_ = s.reader.SetReadDeadline(time.Now()) // what is sent too slowly is not waited for
	}
	s.mu.Unlock()
	s.receiving.Lock()
	defer s.receiving.Unlock()
	s.over = true
	_ = s.dir.Close() // nothing is written any more
}

// readHave finds out up to which counter the events are there, how much of the reports of a
// command, and how much all takes: an earlier process has received it.
func (s *Session) readHave(command bool) error {
	if s.reports = -1; command {
		info, err := s.dir.Lstat(s.artifact(runner.ReportsFile))
		if err != nil {
			return fmt.Errorf("receive the artifacts of run %s: %w", s.id, err)
		}
		s.reports, s.bytes = info.Size(), info.Size()
	}
	names, err := s.dir.Open(s.artifact("job_events"))
	if err != nil {
		return fmt.Errorf("receive the artifacts of run %s: %w", s.id, err)
	}
	defer names.Close()
	all, err := names.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("receive the artifacts of run %s: %w", s.id, err)
	}
	var counters []int
	for _, entry := range all {
		if n, ok := counterOf(entry.Name()); ok {
			counters = append(counters, n)
		}
		if info, err := entry.Info(); err == nil { // else it is gone
			s.bytes += taken(info.Size())
		}
	}
	artifacts, last := lastFiles()
	for _, name := range artifacts {
		last = append(last, s.artifact(name))
	}
	for _, name := range last {
		if info, err := s.dir.Lstat(name); err == nil { // else it has not come
			s.bytes += taken(info.Size())
		}
	}
	slices.Sort(counters)
	for _, n := range counters {
		if n > s.have+1 {
			break // what comes after a gap is sent once more
		}
		s.have = n
	}
	return nil
}

// counterOf is the counter of an event's file.
func counterOf(name string) (int, bool) {
	parts := eventName.FindStringSubmatch(name)
	if parts == nil || strings.HasSuffix(name, "-partial.json") { // a UUID may begin with digits only
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return n, err == nil
}

// ServeHTTP implements [http.Handler] for what is below [Root].
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	digest := sha256.Sum256([]byte(token))
	h.mu.Lock()
	s := h.sessions[digest]
	h.mu.Unlock()
	place := Nowhere
	if s == nil {
		place = h.place(digest)
	}
	switch {
	case place != Nowhere:
		w.Header().Set("Connection", "close") // the next one may lead to another operator
		w.Header().Set(notHereHeader, "true")
		if place == Elsewhere {
			w.Header().Set(elsewhereHeader, "true")
		}
		http.Error(w, "this operator does not have the run", http.StatusServiceUnavailable)
	case s == nil:
		if r.URL.Path != herePath { // after which Pods go on in the same connection
			w.Header().Set("Connection", "close")
		}
		http.Error(w, "there is no such run", http.StatusUnauthorized)
	case r.URL.Path == herePath: // it is
	case r.Method != http.MethodPost || r.URL.Path != startPath && r.URL.Path != filesPath:
		http.Error(w, "there is nothing here", http.StatusNotFound)
	default:
		s.serve(w, r)
	}
}

var (
	errOver     = errors.New("the run is over")
	errOtherPod = errors.New("another Pod makes the run")
	errRefused  = errors.New("this is not a file of a run")
	errTooMuch  = fmt.Errorf("%w: its Pod sends more than twice that", runner.ErrTooLarge)
)

func (s *Session) serve(w http.ResponseWriter, r *http.Request) {
	if !s.receiving.TryLock() { // a container sends one request at a time
		http.Error(w, "another request of the run is in progress", http.StatusServiceUnavailable)
		return
	}
	defer s.receiving.Unlock()
	s.reading(http.NewResponseController(w))
	defer s.reading(nil)
	pod := r.URL.Query().Get(podParameter)
	if pod != "" && (s.pod == "" || s.pod == pod) {
		s.hear()
	}
	err := error(nil)
	switch start := r.URL.Path == startPath; {
	case pod == "" || s.pod != "" && s.pod != pod:
		err = errOtherPod
	case s.over && s.finished():
		// It has not heard that all is there.
	case s.over:
		err = errOver
	case start && s.pod == "":
		s.pod = pod
		close(s.Started)
	case start:
	case s.pod == "" && s.adopted && r.URL.Query().Get(epochParameter) != "":
		s.pod = pod // it has the leave of another operator, which this one has not seen yet
		close(s.Started)
	case s.pod == "":
		err = errOtherPod // it has no leave
	case r.URL.Query().Get(epochParameter) != s.epoch:
		// It has told another operator what this one lacks.
	default:
		err = s.receive(hearing{r.Body, s})
		s.note(err)
	}
	switch {
	case errors.Is(err, errOver):
		http.Error(w, err.Error(), http.StatusUnauthorized)
	case errors.Is(err, errOtherPod):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errRefused), errors.Is(err, errTooMuch):
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		http.Error(w, "not all was received: "+err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(holding{s.epoch, s.have, max(s.reports, 0)}) // who is gone asks again
	}
}

// hear notes that the Pod of the run reaches this operator.
func (s *Session) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// Heard is when the Pod of a run that has begun reached this operator last, or when this operator adopted the run; zero before. It
// asks whether to go on every [Beat] at least.
func (s *Session) Heard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

func (s *Session) finished() bool {
	select {
	case <-s.Done:
		return true
	default:
		return false
	}
}
