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

// Hub receives the artifacts of an operator's runs from their containers. It is an
// [http.Handler], safe for concurrent use.
type Hub struct {
	mu sync.Mutex
	// sessions are keyed by the digest of their token, so that the time of a lookup reveals nothing about tokens.
	sessions map[[sha256.Size]byte]*Session
	place    func(digest [sha256.Size]byte) Place
}

// Place says where a run is that a [Hub] does not have.
type Place int

const (
	Nowhere   Place = iota // the run is unknown, and its container is told to end it
	Later                  // the run will be admitted here
	Elsewhere              // another operator behind the same address has the run
)

// NewHub returns a Hub without runs; place tells where the run is whose token has the digest.
func NewHub(place func(digest [sha256.Size]byte) Place) *Hub {
	return &Hub{sessions: map[[sha256.Size]byte]*Session{}, place: place}
}

// Session is a run whose artifacts are received.
type Session struct {
	// Started is closed when the container has got permission to start the run, and Done when all
	// artifacts and the outcome have been received.
	Started, Done chan struct{}
	// Told gets the name of each event that was received, unless it is full, and an empty text at the start and for each
	// piece of reports.
	Told chan string

	hub    *Hub
	digest [sha256.Size]byte
	id     string
	of     string // the UID of the object
	dir    *os.Root
	limit  int64
	epoch  string
	// adopted is true for a run that another operator may have begun.
	adopted bool

	// receiving is held while a container sends, and guards the fields below.
	receiving sync.Mutex
	pod       string // the Pod that makes the run; empty until one has asked
	have      int    // all events up to this counter are there
	reports   int64  // the bytes of reports; -1 for a run of Ansible
	bytes     int64  // what all received files use of the disk
	over      bool   // nothing more is accepted

	mu      sync.Mutex
	reader  *http.ResponseController // of the request in progress
	closed  bool
	trouble error
	heard   time.Time
}

const (
	// told is the capacity of [Session.Told]; if more events wait, the reader lists their directory.
	told = 64
	// sendTimeout is how long a container may take to send one request.
	sendTimeout = 5 * time.Minute
	// A file uses whole blocks of the disk, and an entry in its directory.
	blockBytes = 4096
	fileBytes  = 512
)

// taken returns how many bytes of the disk a file of the size uses at least.
func taken(size int64) int64 {
	return (size+blockBytes-1)/blockBytes*blockBytes + fileBytes
}

// reading limits the time for the request of c, which is received from now on. nil means that no request is received.
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
	_ = c.SetReadDeadline(until) // without deadlines, as in tests, nothing is slow
}

// Admit receives the artifacts of the run of req in the run's directory, which [runner.CreateMirror]
// has made. pod names the Pod that makes the run; if it is empty, the first Pod that asks makes it.
// The Pod may send twice the bytes that the run may write, because it may have to send all again.
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

// Recorded forgets a run whose end is recorded, if everything of it was received. Its container, which keeps the artifacts
// until then for an operator that adopts the run, learns from that that it may end. If uid is not empty, the run must be of
// the object with that UID.
func (h *Hub) Recorded(id, uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sessions, func(_ [sha256.Size]byte, s *Session) bool {
		return s.id == id && (uid == "" || s.of == uid) && s.finished()
	})
}

// Close ends the reception, and waits for the request in progress to end. The container is told
// to end the run, unless it has sent everything: see [Hub.Recorded].
func (s *Session) Close() {
	s.hub.mu.Lock()
	if !s.finished() {
		delete(s.hub.sessions, s.digest)
	}
	s.hub.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	if s.reader != nil {
		_ = s.reader.SetReadDeadline(time.Now()) // do not wait for a slow sender
	}
	s.mu.Unlock()
	s.receiving.Lock()
	defer s.receiving.Unlock()
	s.over = true
	_ = s.dir.Close() // nothing more is written
}

// readHave sets have, reports and bytes from what an earlier process has received.
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
		if info, err := s.dir.Lstat(name); err == nil { // else it was not received
			s.bytes += taken(info.Size())
		}
	}
	slices.Sort(counters)
	for _, n := range counters {
		if n > s.have+1 {
			break // events after a gap are sent again
		}
		s.have = n
	}
	return nil
}

// counterOf returns the counter in the name of an event's file; it is false for other names.
func counterOf(name string) (int, bool) {
	parts := eventName.FindStringSubmatch(name)
	if parts == nil || strings.HasSuffix(name, "-partial.json") { // a UUID may begin with digits only
		return 0, false
	}
	n, err := strconv.Atoi(parts[1])
	return n, err == nil
}

// ServeHTTP implements [http.Handler] for paths below [Root].
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
		w.Header().Set("Connection", "close") // the next connection may lead to another operator
		w.Header().Set(notHereHeader, "true")
		if place == Elsewhere {
			w.Header().Set(elsewhereHeader, "true")
		}
		http.Error(w, "this operator does not have the run", http.StatusServiceUnavailable)
	case s == nil:
		if r.URL.Path != herePath { // after herePath, Pods go on in the same connection
			w.Header().Set("Connection", "close")
		}
		http.Error(w, "there is no such run", http.StatusUnauthorized)
	case r.URL.Path == herePath: // the run is here
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
	if !s.receiving.TryLock() { // a container should send one request at a time
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
		// It has not got the answer that everything was received.
	case s.over:
		err = errOver
	case start && s.pod == "" && s.adopted && (s.have > 0 || s.reports > 0):
		err = errOtherPod // the Pod that has sent these started the run, and asks for that only once
	case start && s.pod == "":
		s.pod = pod
		close(s.Started)
	case start:
	case s.pod == "" && s.adopted && r.URL.Query().Get(epochParameter) != "":
		s.pod = pod // another operator has permitted it to start, which this one has not seen yet
		close(s.Started)
	case s.pod == "":
		err = errOtherPod // it has no permission to start
	case r.URL.Query().Get(epochParameter) != s.epoch:
		// It does not know yet what this operator has: the answer says so.
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
		_ = json.NewEncoder(w).Encode(holding{s.epoch, s.have, max(s.reports, 0)}) // if the answer is lost, the container asks again
	}
}

// hear notes that the Pod of the run reaches this operator.
func (s *Session) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// Heard returns when the Pod of the run last reached this operator, or when this operator adopted the run; zero before
// the run has begun. The Pod asks whether to go on every [Beat] at least.
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
