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
	// apart is true for a request of a run in another Pod.
	fromPod bool
	// call is true for what the operator answers itself: it is neither forwarded nor
	// confined to a namespace, and the run's calls see to what it may do.
	call bool

	// marked is true if the written object bears the owner's mark afterwards;
	// created, if it was put on an object that did not exist.
	marked, created bool
	// noted is true if the written object bears, or gets, the note that a run of the
	// owner has created it.
	noted bool
	// version is the object's before the write, where it was looked at; looked is
	// true if it was.
	version string
	looked  bool
	// uid is that of the object whose subresource is written, where it was looked at.
	uid types.UID
	// absent is true if the API server does not have the kind; expected is what the tracker
	// is told then if the answer is another.
	absent   bool
	expected *Child
	// markAfter is true if the written object gets the mark after the write.
	markAfter bool
	// markHold is then what the answer takes, from before the write: without room the object would stay unmarked.
	markHold *hold
	// asked is the name in the body of a create.
	asked string
	// outlives is true if the written object is to stay when its owner goes.
	outlives bool
	// keptByStored is true if only the stored object says so, and not the body: the write may remove it.
	keptByStored bool
	// holds are those of its bodies.
	holds []*hold
	// unread is why the values of Secrets in the request could not be read.
	unread error

	// code, answer and failure are how the API server answered.
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
		other.ServeHTTP(w, r) // which knows whether another operator has the run
		return
	}
	if refused != nil {
		p.log.V(1).Info("Request refused", "method", r.Method, "reason", refused.message)
		p.opts.Metrics.ProxyRequest("", "", OutcomeRefused)
		// net/http wants to have read the body before it answers.
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
			_ = over.NetConn().Close() // before TLS is ended in order, from which a Pod could not tell that its exec was cut
		}
		cancel(errRunEnded)
		if ok {
			_ = conn.Close() // what is written to a client that does not read would wait for ever
		}
	}
	defer context.AfterFunc(x.s.ctx, cut)()   //nolint:contextcheck // the run's end, not the request's, is waited for
	defer context.AfterFunc(p.all.ctx, cut)() //nolint:contextcheck // the end of all, as above
	x.serve(w, r.WithContext(ctx))
}

// open finds out what r is and who sends it.
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
	// What is kept of them does not keep the whole URL, its query too, in memory.
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
// can, whatever the HTTP method of its request; so can a command that the kubelet,
// or another server, gets through the API server's proxy.
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
	defer x.letGo() // last
	changed := func() {}
	defer func() { changed() }() // after the next one
	defer x.finish(context.WithoutCancel(r.Context()))
	if x.call {
		x.answerCall(w, r)
		return
	}
	if discovery.Handles(r) {
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
// kind, and the grant asks for that.
func (x *exchange) ofSelf() bool {
	owner := x.s.Owner
	return x.s.Self != nil && x.info.IsResourceRequest && x.info.APIGroup == owner.GVK.Group && x.kind == owner.GVK.Kind &&
		x.info.Name == owner.Name && x.namespace() == owner.Namespace
}

// readsAnswer reports whether the answer is read as it passes.
func (x *exchange) readsAnswer() bool {
	return x.tellsSecrets() || x.write && x.info.IsResourceRequest && !isConnection(x.info, "exec", "attach", "portforward", "proxy")
}

// onlyJSON is what of an Accept header is answered in JSON; false if nothing is. A
// server that has no JSON for a client that takes anything sends what it has.
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
		panic(http.ErrAbortHandler) // as requests that are in progress when the run ends
	}
	refused, ok := errors.AsType[*refusal](err)
	x.cut(refused)
	if !ok {
		refused = refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
	x.code = 0
	refused.write(w)
}

// cut leaves a write of a run in another Pod without an answer that this replica may not forward: the run goes on
// with another one, and counts as interrupted where a task fails for that.
func (x *exchange) cut(refused *refusal) {
	if x.fromPod && refused != nil && refused.notLeading {
		panic(http.ErrAbortHandler)
	}
}

// fence refuses a write that the run must not make now.
func (x *exchange) fence() error { return x.p.fence(x.s) }

// fence is the refusal of a write of a session; nil if it may write.
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

// finish counts and logs the exchange, and notifies the tracker of what the answer says.
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

// verb is the verb of the request, out of a bounded set: a request that is for no
// object has the client's method as its verb.
func (x *exchange) verb() string {
	if x.info.IsResourceRequest || slices.Contains([]string{"get", "head", "post", "put", "patch", "delete"}, x.info.Verb) {
		return x.info.Verb
	}
	return "other"
}

// read is what ansible-operator logs of a request that it does not answer from
// its cache; tests of its users search for it. The names and their order are
// part of that.
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
