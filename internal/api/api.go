// Package api serves what the operator knows about its runs: the history, and what
// is happening now. It only reads. Each client shows a token of the cluster, and sees the runs
// of the objects that it may get.
package api

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/history"
)

// The version of the API, as it occurs in answers and paths.
const (
	Version = "rolewright.dev/v1"
	Root    = "/apis/" + Version
)

// Kind is a kind that the operator watches.
type Kind struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
}

// GVR returns the resource of the kind's objects.
func (k Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// called tells whether a person means this kind: by its name or resource, in any case, with or
// without its group.
func (k Kind) called(kind, group string) bool {
	return (strings.EqualFold(kind, k.Kind) || strings.EqualFold(kind, k.Resource)) && (group == "" || group == k.Group)
}

// Options are the options of [New].
type Options struct {
	History *history.Recorder
	// Client is used to ask who a client is, and what it may do.
	Client kubernetes.Interface
	// Kinds returns the kinds whose runs are shown. It is called for each request.
	Kinds func() []Kind
	// Waiting returns the runs that are waiting. It is called for each request.
	Waiting func() []Waiting
	// Leads returns true while this process makes runs.
	Leads func() bool
	// Shards says how the replicas share the objects. It returns nil if they do not.
	Shards func() *Shards
}

// Shards says how replicas share the objects: each replica has a queue of its own.
type Shards struct {
	// Replica is the replica that answers.
	Replica string `json:"replica"`
	// Holders are the replicas that hold the shards, in the order of the shards; a name is empty if the holder is not known.
	Holders []string `json:"holders"`
}

// Held returns how many shards the answering replica holds.
func (s *Shards) Held() (n int) {
	for _, holder := range s.Holders {
		if holder == s.Replica {
			n++
		}
	}
	return n
}

// RunList is the answer for a list of runs.
type RunList struct {
	metav1.TypeMeta
	Metadata ListMeta        `json:"metadata"`
	Items    []history.Brief `json:"items"`
}

// ListMeta describes the state when a list was made.
type ListMeta struct {
	// Continue is the start of the next page; empty on the last page.
	Continue string `json:"continue,omitempty"`
	// Cursor is the position from which events are not yet in the list.
	Cursor string `json:"cursor"`
	// Leads is false if another replica makes the runs.
	Leads bool `json:"leads"`
	// Shards is left out if the replicas do not share the objects.
	Shards *Shards `json:"shards,omitempty"`
}

// Run is the answer for one run.
type Run struct {
	metav1.TypeMeta
	Metadata ListMeta    `json:"metadata"`
	Run      history.Run `json:"run"`
}

type server struct {
	Options
	access *access
	// beat is the time between two keep-alive messages in a stream.
	beat    time.Duration
	streams streams
}

func newServer(o Options) *server {
	return &server{Options: o, access: newAccess(o.Client, time.Now), beat: 15 * time.Second}
}

// Server serves all paths below [Root].
type Server struct {
	http.Handler
	access *access
}

// New returns the server.
func New(o Options) *Server {
	s := newServer(o)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root+"/runs", s.runs)
	mux.HandleFunc("GET "+Root+"/runs/{id}", s.run)
	mux.HandleFunc("GET "+Root+"/queue", s.queue)
	mux.HandleFunc("GET "+Root+"/events", s.events)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if r.Header.Get("Sec-Fetch-Site") != "" {
			// Browsers send this header: a page of another origin may have found the port.
			fail(w, &problem{http.StatusForbidden, "no browser reads this"})
			return
		}
		mux.ServeHTTP(w, r)
	})
	return &Server{Handler: handler, access: s.access}
}

func fail(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a client that is gone needs no answer
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Message: p.message, Code: int32(p.code),
	})
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // as above
}

// answerList is answerJSON, but compressed if the client accepts that: a thousand runs are 400 kB
// of repetitive text, and travel through the API server.
func answerList(w http.ResponseWriter, r *http.Request, list RunList) {
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		answerJSON(w, list)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Encoding", "gzip")
	zip := gzip.NewWriter(w)
	_ = json.NewEncoder(zip).Encode(list) // a client that is gone needs no answer
	_ = zip.Close()
}

// selection says which runs a client has asked for, and may see.
type selection struct {
	kinds     map[[2]string]string // maps group and kind to the namespace of the objects; empty for any
	namespace string
	name      string
	result    string
	run       string
	user      string // who asks
}

// wants reports whether a run is selected.
func (q selection) wants(b history.Brief) bool {
	namespace, asked := q.kinds[[2]string{b.Group, b.Kind}]
	return asked && (namespace == "" || namespace == b.Namespace) && (q.name == "" || q.name == b.Name) &&
		(q.result == "" || q.result == b.Result) && (q.run == "" || q.run == b.ID)
}

// maxName is the maximum length of an object's name. Answers are cached by name.
const maxName = 253

// selects reads the query of r: group and kind, namespace, name, result and run. The namespace is
// ignored if the query names a kind that is cluster-scoped.
func (s *server) selects(r *http.Request) (selection, *problem) {
	c, bad := s.access.authenticate(r)
	if bad != nil {
		return selection{}, bad
	}
	q := r.URL.Query()
	sel := selection{
		kinds: map[[2]string]string{}, namespace: q.Get("namespace"), name: q.Get("name"), result: q.Get("result"), run: q.Get("run"),
		user: c.user.Username,
	}
	if len(sel.namespace) > maxName || len(sel.name) > maxName {
		return sel, &problem{http.StatusBadRequest, fmt.Sprintf("namespace and name have at most %d characters", maxName)}
	}
	asked := false
	kind := q.Get("kind")
	for _, k := range s.Kinds() {
		if kind != "" && !k.called(kind, q.Get("group")) {
			continue
		}
		asked = true
		namespace, only := sel.namespace, sel.namespace
		if !k.Namespaced {
			namespace = ""
			if kind != "" {
				only = ""
			}
		}
		may, bad := s.access.mayGet(r.Context(), c, k, namespace, sel.name)
		if bad != nil {
			return sel, bad
		}
		if may {
			sel.kinds[[2]string{k.Group, k.Kind}] = only
		}
	}
	switch {
	case !asked:
		return sel, &problem{http.StatusNotFound, fmt.Sprintf("the operator watches no kind %.200q", strings.Trim(q.Get("kind")+"."+q.Get("group"), "."))}
	case len(sel.kinds) == 0 && sel.namespace == "":
		return sel, &problem{http.StatusForbidden, fmt.Sprintf("user %q may not get the objects of all namespaces: name a namespace", c.user.Username)}
	case len(sel.kinds) == 0:
		return sel, &problem{http.StatusForbidden, fmt.Sprintf("user %q may not get the objects in namespace %.100q", c.user.Username, sel.namespace)}
	}
	return sel, nil
}

// inAll returns the namespace that all selected runs have; empty if they differ, or have none.
func (q selection) inAll() string {
	for _, namespace := range q.kinds {
		if namespace != q.namespace {
			return ""
		}
	}
	return q.namespace
}

// The number of runs in a list.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// limitOf returns how many items r asks for.
func limitOf(r *http.Request) (int, *problem) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, &problem{http.StatusBadRequest, fmt.Sprintf("limit: write a number from 1 to %d", maxLimit)}
	}
	return n, nil
}

func (s *server) meta(next string) ListMeta {
	return ListMeta{Continue: next, Cursor: strconv.FormatUint(s.History.Cursor(), 10), Leads: s.Leads(), Shards: s.Shards()}
}

// runs lists runs: those in progress first, then the newest.
func (s *server) runs(w http.ResponseWriter, r *http.Request) {
	sel, bad := s.selects(r)
	if bad != nil {
		fail(w, bad)
		return
	}
	limit, bad := limitOf(r)
	if bad != nil {
		fail(w, bad)
		return
	}
	list := RunList{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "RunList"}, Items: []history.Brief{}}
	list.Metadata = s.meta("") // before the list: an event may be in both
	before := r.URL.Query().Get("continue")
	if before == "" {
		for _, b := range s.History.Running() {
			if sel.wants(b) {
				list.Items = append(list.Items, b)
			}
		}
	}
	ended, next, err := s.History.Runs(history.Query{
		Wants: sel.wants, Namespace: sel.inAll(), Name: sel.name, Result: sel.result, Limit: limit, Before: before,
	})
	if err != nil {
		fail(w, problemOf(err))
		return
	}
	list.Items = append(list.Items, ended...)
	list.Metadata.Continue = next
	answerList(w, r, list)
}

func problemOf(err error) *problem {
	switch {
	case errors.Is(err, history.ErrNotFound):
		return &problem{http.StatusNotFound, err.Error()}
	case errors.Is(err, history.ErrSeveral):
		return &problem{http.StatusBadRequest, err.Error()}
	}
	return &problem{http.StatusInternalServerError, err.Error()}
}

// noRun says that no run has an ID, and that another replica may have the run. The answer is the same for runs that the
// client may not see.
func (s *server) noRun(id string) *problem {
	message := fmt.Sprintf("run %.40q: %v", id, history.ErrNotFound)
	switch {
	case !s.Leads():
		message += "; this replica makes no runs: another one has the history of current runs"
	case s.Shards() != nil:
		message += "; this replica has the runs of its shards only"
	}
	return &problem{http.StatusNotFound, message}
}

// run returns one run, if the client may get its object. Otherwise the answer is the same as for a
// run that does not exist.
func (s *server) run(w http.ResponseWriter, r *http.Request) {
	c, bad := s.access.authenticate(r)
	if bad != nil {
		fail(w, bad)
		return
	}
	answer := Run{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Run"}, Metadata: s.meta("")}
	run, err := s.History.Run(r.PathValue("id"))
	if errors.Is(err, history.ErrNotFound) {
		fail(w, s.noRun(r.PathValue("id")))
		return
	}
	if err != nil && !errors.Is(err, history.ErrSeveral) {
		fail(w, problemOf(err))
		return
	}
	may := false
	for _, k := range s.Kinds() {
		// Clients that may get all objects may learn that several IDs begin with it: run is empty then.
		if k.Group == run.Group && k.Kind == run.Kind || err != nil {
			if may, bad = s.access.mayGet(r.Context(), c, k, run.Namespace, run.Name); bad != nil {
				fail(w, bad)
				return
			}
			if err != nil && !may {
				break
			}
		}
	}
	if err != nil && may {
		fail(w, problemOf(err))
		return
	}
	if !may {
		fail(w, s.noRun(r.PathValue("id")))
		return
	}
	answer.Run = run
	answerJSON(w, answer)
}
