package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/rolewright/rolewright/internal/discovery"
)

// exchange is one request of a run and its answer.
type exchange struct {
	p    *Proxy
	s    *session
	info *request.RequestInfo
	kind string
	// write is true if the request can change something.
	write  bool
	dryRun bool
	// fromPod is true for a request of a run in another Pod.
	fromPod bool
	// call is true for a request that the operator answers itself: it is neither forwarded
	// nor confined to a namespace; Calls of the grant decides what it may do.
	call bool

	// marked is true if the written object has the owner's mark afterwards; created
	// is true if the object did not exist before.
	marked, created bool
	// noted is true if the written object has, or gets, the note that a run of the
	// owner has created it.
	noted bool
	// looked is true if the proxy has read the object before the write; version is the
	// object's resourceVersion then, empty if it is not known.
	version string
	looked  bool
	// uid is the UID of the object whose subresource is written, if the proxy has read it.
	uid types.UID
	// absent is true if the API server does not have the kind; expected is then passed to the
	// tracker once the API server has not refused the write.
	absent   bool
	expected *Child
	// markAfter is true if the written object gets the mark after the write.
	markAfter bool
	// markHold is then the hold of the answer. It is taken before the write: without room for the answer, the object
	// would stay unmarked.
	markHold *hold
	// asked is the name in the body of a create.
	asked string
	// outlives is true if the written object is to stay when its owner is deleted.
	outlives bool
	// keptByStored is true if only the stored object, and not the body, says that it outlives its owner: the write may
	// remove that.
	keptByStored bool
	// holds are the holds of all its bodies.
	holds []*hold
	// unread is why the values of Secrets in the request could not be read.
	unread error

	// code is the HTTP status of the answer, 0 if there was none; answer is the copy of its body, nil if none is kept;
	// failure is why there was no answer.
	code   int
	answer *recording
	// tunnel is the connection to the API server after an upgrade.
	tunnel  io.Closer
	failure error
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.all.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.all.active.Done()
	x, refused := p.open(r)
	if refused == nil && !x.s.enter() {
		refused = refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, errRunEnded.Error())
	}
	if other, ok := r.Context().Value(remoteKey{}).(http.Handler); ok && refused != nil && refused.code == http.StatusUnauthorized {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.bodyTimeout))
		other.ServeHTTP(w, r) // this handler knows whether another operator has the run
		return
	}
	if refused != nil {
		p.log.V(1).Info("Request refused", "method", r.Method, "reason", refused.message)
		p.opts.Metrics.ProxyRequest("", "", OutcomeRefused)
		// net/http reads the body before it answers.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.bodyTimeout))
		refused.write(w)
		return
	}
	defer x.s.active.Done()
	x.fromPod = isRemote(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	cut := func() {
		conn, ok := r.Context().Value(connKey{}).(net.Conn)
		if over, is := conn.(*tls.Conn); is && x.fromPod {
			_ = over.NetConn().Close() // after a proper end of TLS, the Pod could not tell that its exec was cut
		}
		cancel(errRunEnded)
		if ok {
			_ = conn.Close() // a write to a client that does not read would wait forever
		}
	}
	defer context.AfterFunc(x.s.ctx, cut)()   //nolint:contextcheck // the run's end, not the request's, is waited for
	defer context.AfterFunc(p.all.ctx, cut)() //nolint:contextcheck // the end of all, as above
	x.serve(w, r.WithContext(ctx))
}

// open returns the exchange for r, with the session of its client, or a refusal.
func (p *Proxy) open(r *http.Request) (*exchange, *refusal) {
	if refused := checkAddress(r); refused != nil {
		return nil, refused
	}
	s, refused := p.session(r)
	if refused != nil {
		return nil, refused
	}
	info, err := p.infos.NewRequestInfo(r)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	if refused := checkPath(r, isConnection(info, "proxy")); refused != nil {
		return nil, refused
	}
	// Without a clone, each part would keep the whole URL in memory, including its query.
	for _, part := range []*string{&info.Path, &info.APIGroup, &info.APIVersion, &info.Resource, &info.Subresource, &info.Namespace, &info.Name} {
		*part = strings.Clone(*part)
	}
	if isCall(r) {
		return &exchange{p: p, s: s, info: info, call: true}, nil
	}
	if refused := p.confine(s, r, info); refused != nil {
		return nil, refused
	}
	if refused := cmp.Or(p.keepOff(s, r, info), p.keepLeases(r, info)); refused != nil {
		return nil, refused
	}
	return &exchange{
		p: p, s: s, info: info, write: writes(r, info) || s.CheckMode && connects(r, info), dryRun: len(r.URL.Query()["dryRun"]) > 0,
	}, nil
}

// isConnection reports whether a request is for one of these subresources, in
// which bytes are exchanged with something that is not the API server.
func isConnection(info *request.RequestInfo, subresources ...string) bool {
	return info.IsResourceRequest && slices.Contains(subresources, info.Subresource)
}

// writes reports whether a request can change something. A command in a container
// can, whatever the HTTP method of its request. So can a command that the kubelet,
// or another server, receives through the API server's proxy.
func writes(r *http.Request, info *request.RequestInfo) bool {
	if isConnection(info, "exec", "attach", "portforward") || isConnection(info, "proxy") && isUpgrade(r.Header) {
		return true
	}
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// isDefinition reports whether a request is about the definition of kinds.
func isDefinition(info *request.RequestInfo) bool {
	return info.APIGroup == "apiextensions.k8s.io" && info.Resource == "customresourcedefinitions" ||
		info.APIGroup == "apiregistration.k8s.io" && info.Resource == "apiservices"
}

func (x *exchange) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: x.info.APIGroup, Version: x.info.APIVersion, Resource: x.info.Resource}
}

func (x *exchange) serve(w http.ResponseWriter, r *http.Request) {
	defer x.letGo() // runs last
	changed := func() {}
	defer func() { changed() }() // runs after finish
	defer x.finish(context.WithoutCancel(r.Context()))
	if x.call {
		x.answerCall(w, r)
		return
	}
	if discovery.Handles(r) {
		if err := x.s.documents.Acquire(r.Context(), 1); err != nil {
			panic(http.ErrAbortHandler) // the client or the run has gone
		}
		defer x.s.documents.Release(1)
		x.code = http.StatusOK
		x.p.discovery.ServeHTTP(w, r)
		return
	}
	if x.info.IsResourceRequest {
		x.kind = x.p.kindOf(r.Context(), x.gvr())
		x.touch(x.info.Name)
	}
	if x.write {
		if err := x.prepare(w, r); err != nil {
			x.refused(w, err)
			return
		}
	} else {
		x.logRead()
		if x.ofSelf() && x.info.Verb != "watch" {
			x.s.Self.Reads()
		}
	}
	if x.readsAnswer() {
		accept, ok := onlyJSON(r.Header.Values("Accept"))
		if !ok && x.info.Subresource == "" {
			x.refused(w, refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
				"a run's writes, and its reads of Secrets, are answered in JSON: accept application/json"))
			return
		}
		if ok {
			r.Header.Set("Accept", accept)
		}
	}
	if x.changesSelf() {
		changed = x.s.Self.Changing()
	}
	x.forward(w, r)
}

// ofSelf reports whether the exchange is about the owner itself, in any version of its
// kind, and Self of the grant is set.
func (x *exchange) ofSelf() bool {
	owner := x.s.Owner
	return x.s.Self != nil && x.info.IsResourceRequest && x.info.APIGroup == owner.GVK.Group && x.kind == owner.GVK.Kind &&
		x.info.Name == owner.Name && x.namespace() == owner.Namespace
}

// readsAnswer reports whether the answer is read as it passes.
func (x *exchange) readsAnswer() bool {
	return x.tellsSecrets() || x.write && x.info.IsResourceRequest && !isConnection(x.info, "exec", "attach", "portforward", "proxy")
}

// onlyJSON returns the part of an Accept header that allows JSON; false if none does.
// For a client that accepts anything, a server without JSON may send what it has.
func onlyJSON(header []string) (string, bool) {
	var ranges []string
	all := cmp.Or(strings.TrimSpace(strings.Join(header, ",")), runtime.ContentTypeJSON)
	for r := range strings.SplitSeq(all, ",") {
		r = strings.TrimSpace(r)
		switch name, _, _ := strings.Cut(r, ";"); strings.ToLower(strings.TrimSpace(name)) {
		case runtime.ContentTypeJSON:
			ranges = append(ranges, r)
		case "application/*", "*/*":
			_, parameters, _ := strings.Cut(r, ";")
			ranges = append(ranges, strings.TrimSuffix(runtime.ContentTypeJSON+";"+parameters, ";"), "*/*;q=0.01")
		}
	}
	return strings.Join(ranges, ", "), len(ranges) > 0
}

func (x *exchange) refused(w http.ResponseWriter, err error) {
	x.failure = err
	if errors.Is(err, errRunEnded) {
		panic(http.ErrAbortHandler) // like requests in progress when the run ends
	}
	refused, ok := errors.AsType[*refusal](err)
	x.cut(refused)
	if !ok {
		refused = refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
	x.code = 0
	refused.write(w)
}

// cut breaks off a write of a run in another Pod that this replica may not forward because it does not lead: the run
// goes on with another replica, and counts as interrupted if a task fails because of the missing answer.
func (x *exchange) cut(refused *refusal) {
	if x.fromPod && refused != nil && refused.notLeading {
		panic(http.ErrAbortHandler)
	}
}

// fence refuses a write that the run must not make now.
func (x *exchange) fence() error { return x.p.fence(x.s) }

// fence returns the refusal for a write of a session; nil if the session may write.
func (p *Proxy) fence(s *session) error {
	why, notLeading := s.refusing(), false
	if why == "" && p.opts.MayWrite != nil {
		if err := p.opts.MayWrite(); err != nil {
			why, notLeading = err.Error(), true
		}
	}
	if why == "" {
		return nil
	}
	refused := refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the API proxy forwards no writes: "+why)
	refused.notLeading = notLeading
	return refused
}

// finish counts and logs the exchange, and passes what the answer says to the tracker.
func (x *exchange) finish(ctx context.Context) {
	outcome := OutcomeOK
	var refused *refusal
	switch {
	case errors.As(x.failure, &refused):
		outcome = OutcomeRefused
	case x.failure != nil || x.code == 0:
		outcome = OutcomeFailed
	case x.code >= http.StatusInternalServerError:
		outcome = OutcomeServer
	case x.code >= http.StatusBadRequest:
		outcome = OutcomeClient
	}
	x.p.opts.Metrics.ProxyRequest(x.verb(), x.kind, outcome)
	if x.unread != nil && x.code != http.StatusUnsupportedMediaType {
		x.withhold(x.unread.Error())
	}
	x.record()
	if !x.write {
		x.found()
		x.see()
		return
	}
	written := x.follow(ctx)
	if x.evicts() && x.uid != "" && x.code/100 == 2 {
		evicted := x.child("", "")
		evicted.UID = x.uid
		x.s.Tracker.Deleted(evicted)
	}
	x.tellWritten(written)
	log := x.p.log.V(1)
	if !log.Enabled() {
		return
	}
	name := x.info.Name
	if name == "" && len(written) == 1 {
		name = written[0].Name
	}
	log.Info("Write", "job", x.s.RunID, "owner", x.s.Owner.Namespace+"/"+x.s.Owner.Name, "verb", x.info.Verb,
		"resource", x.gvr().String(), "subresource", x.info.Subresource, "namespace", x.info.Namespace, "object", name,
		"dryRun", x.dryRun, "outcome", outcome, "code", x.code, "owned", x.marked)
}

// verb returns the verb of the request for metrics, from a bounded set. A request that is
// not for a resource has the client's HTTP method as its verb, which can be any text.
func (x *exchange) verb() string {
	if x.info.IsResourceRequest || slices.Contains([]string{"get", "head", "post", "put", "patch", "delete"}, x.info.Verb) {
		return x.info.Verb
	}
	return "other"
}

// read is what ansible-operator logs about a request that it does not answer from
// its cache. Users' tests search for it, so the names and their order must stay.
type read struct {
	IsResourceRequest bool
	Path              string
	Verb              string
	APIPrefix         string
	APIGroup          string
	APIVersion        string
	Namespace         string
	Resource          string
	Subresource       string
	Name              string
	Parts             []string
}

func (x *exchange) logRead() {
	i := x.info
	if !i.IsResourceRequest {
		return
	}
	if log := x.p.log.V(2); log.Enabled() {
		log.Info("Skipping cache lookup", "resource", read{
			true, i.Path, i.Verb, i.APIPrefix, i.APIGroup, i.APIVersion, i.Namespace, i.Resource, i.Subresource, i.Name, i.Parts,
		})
	}
	for _, gvk := range x.s.Blacklist {
		if gvk.Group == i.APIGroup && gvk.Version == i.APIVersion && gvk.Kind == x.kind {
			x.p.log.Info("Skipping, because gvk is blacklisted", "GVK", gvk.String())
		}
	}
}
