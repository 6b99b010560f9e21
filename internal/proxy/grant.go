package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Owner is the custom resource that a run is made for.
type Owner struct {
	GVK schema.GroupVersionKind
	// Namespace is empty for a cluster-scoped resource.
	Namespace, Name string
	UID             types.UID
}

// Grant says who a client is and what it may do. It is not changed after
// [Proxy.Admit].
type Grant struct {
	// RunID names the run in the log.
	RunID string
	Owner Owner
	// Inject marks the objects that the run creates as owned by Owner.
	Inject bool
	// AdoptUnowned also marks the objects that the run writes and that have no owner.
	AdoptUnowned bool
	// OwnNamespaceOnly refuses access to everything outside the owner's namespace,
	// except for the owner itself, discovery, and the run's own permissions.
	OwnNamespaceOnly bool
	// CheckMode makes all writes dry runs, and refuses writes that cannot be dry runs. It
	// applies even to programs that know nothing of check mode.
	CheckMode bool
	// Blacklist has the kinds that are not watched as dependents of the owner.
	Blacklist []schema.GroupVersionKind
	// Tracker is notified of writes; it may be nil.
	Tracker Tracker
	// Self is notified of what the run does to the owner itself; it may be nil.
	Self Self
	// Touched is notified of each object that the run names in a request, whatever the
	// request and its outcome; it may be nil. It is called concurrently.
	Touched Touched
	// Note puts a note on objects that the run creates, which [CreatedBy] reads.
	Note bool
	// Writes is notified of writes, too; it may be nil.
	Writes Writes
	// Secrets gets the values of Secrets, and the token; it may be nil.
	Secrets Secrets
	// Written is called for each write that is answered; it may be nil. It is called
	// concurrently, and must not block.
	Written func(Written)
	// Calls answers the run's requests to the operator itself; nil refuses them.
	Calls Calls
	// Token is the token of a run that an earlier process has begun; empty for a new run.
	Token string
}

// Self is notified of what a run does to its own custom resource. Its methods are
// called concurrently.
type Self interface {
	// Reads is called before a read of the object is forwarded; the read waits for it.
	Reads()
	// Wrote is called once a write of the object, or of its status, has succeeded, and
	// before the client gets the answer.
	Wrote()
	// Changing is called before a write of the object, other than of its status, is forwarded.
	// changed is called once the write has failed, or Stored was called for it.
	Changing() (changed func())
	// Stored is called with the generation of the object after a write of the object, other
	// than of its status, before the grant is revoked.
	Stored(generation int64)
}

// Touched is notified of the objects that a run names.
type Touched interface {
	Touch(resource schema.GroupVersionResource, namespace, name string)
	// Untold is called if the run has named an object and its name cannot be read.
	Untold()
}

// session is a grant in use.
type session struct {
	Grant
	ctx context.Context
	end context.CancelCauseFunc

	versions versions
	// room, answers and marks limit this run's bodies as those of [Proxy] limit the bodies of all.
	room, answers, marks *semaphore.Weighted
	// documents limits the discovery documents that this run gets at the same time.
	documents *semaphore.Weighted
	notices   *notices

	mu      sync.Mutex
	ended   bool
	refusal string                 // why writes are refused; empty if they are not
	made    map[types.UID]struct{} // the objects that its requests have created
	active  sync.WaitGroup
}

// errRunEnded is the cause with which the requests of a run are cut off.
var errRunEnded = errors.New("the run has ended")

// enter begins a request, which has to call s.active.Done at its end. It returns
// false if the run has ended.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.active.Add(1)
	}
	return !s.ended
}

// refusing returns why writes of this run are refused, empty if they are not.
func (s *session) refusing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

func (s *session) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = why
}

// close cuts off the requests in progress, and waits for their end.
func (s *session) close() {
	s.end(errRunEnded)
	s.drain()
}

// drain refuses new requests, and waits for those in progress to end.
func (s *session) drain() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.active.Wait()
}

// sessions has the grants in use. A token is looked up by its digest, so that the
// time of the lookup reveals nothing about the valid tokens.
type sessions struct {
	mu      sync.Mutex
	byToken map[[sha256.Size]byte]*session
}

func (t *sessions) find(token string) *session {
	digest := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byToken[digest]
}

func newSession(g Grant) *session {
	g.Blacklist = slices.Clone(g.Blacklist)
	s := &session{
		Grant: g, room: semaphore.NewWeighted(maxHeldByRun), answers: semaphore.NewWeighted(maxHeldByRun),
		marks: semaphore.NewWeighted(maxHeldByRun), documents: semaphore.NewWeighted(maxDocuments), notices: newNotices(), made: map[types.UID]struct{}{},
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// tokenBytes is the length of a token before it is encoded: 256 bits.
const tokenBytes = 32

// Access is a run's access to the proxy: a token that is valid until it is revoked.
// It is safe for concurrent use.
type Access struct {
	p       *Proxy
	session *session
	token   string
}

// Admit gives access according to g to the holder of g.Token or, if it is empty, of a new token.
func (p *Proxy) Admit(g Grant) *Access {
	a := &Access{p: p, session: newSession(g), token: g.Token}
	if a.token == "" {
		secret := make([]byte, tokenBytes)
		_, _ = rand.Read(secret) // it never fails: it ends the program instead
		a.token = base64.RawURLEncoding.EncodeToString(secret)
	}
	if g.Secrets != nil {
		g.Secrets.Add(a.session.ctx, a.token)
	}
	p.sessions.mu.Lock()
	defer p.sessions.mu.Unlock()
	p.sessions.byToken[sha256.Sum256([]byte(a.token))] = a.session
	return a
}

// Token returns the run's token, and the server of its kubeconfig with the certificate that it trusts.
func (a *Access) Token() (token, server string, ca []byte) { return a.token, a.p.URL(), a.p.ca }

// Call makes a call for the run, as if the run had sent it; see [Calls].
func (a *Access) Call(ctx context.Context, name string, body []byte) error {
	if !a.session.enter() {
		return errRunEnded
	}
	defer a.session.active.Done()
	if a.session.Calls == nil {
		return errors.New("there is no operator to answer it")
	}
	if err := a.p.fence(a.session); err != nil {
		return err
	}
	_, err := a.session.Calls.Call(ctx, name, body)
	return err
}

// Refuse refuses all further writes of the run; clients get why as the reason.
func (a *Access) Refuse(why string) { a.session.refuse(why) }

// Revoke makes the token invalid, cuts off the requests in progress, and waits for
// their end. It may be called more than once.
func (a *Access) Revoke() {
	a.p.sessions.mu.Lock()
	delete(a.p.sessions.byToken, sha256.Sum256([]byte(a.token)))
	a.p.sessions.mu.Unlock()
	a.session.close()
}

// Leave refuses new requests and waits for those in progress, which it cuts off after patience: the run goes on with another
// operator. The caller has to call Revoke afterwards.
func (a *Access) Leave(patience time.Duration) {
	defer time.AfterFunc(patience, func() { a.session.end(errRunEnded) }).Stop()
	a.session.drain()
}
