package proxy

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// checkAddress refuses requests that were not meant for this server, above all those
// that use a host name that was pointed at the loopback address (DNS rebinding), and
// requests that are not for the Kubernetes API.
func checkAddress(r *http.Request) *refusal {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch strings.Trim(host, "[]") {
	case "localhost", "127.0.0.1", "::1":
	default:
		return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "the Host header names another server than the API proxy")
	}
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, "/") {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "not a request for the Kubernetes API")
	}
	return nil
}

// checkPath refuses paths that this server and another might read differently.
// It does not check empty and encoded segments in paths that the API server
// forwards to another server; relative segments would lead out of that path.
func checkPath(r *http.Request, forwarded bool) *refusal {
	bad := !forwarded && (strings.Contains(r.URL.Path, "//") || strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f"))
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		bad = bad || segment == "." || segment == ".."
	}
	if bad {
		return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"the path has empty, relative or encoded segments: ask for the object's plain path")
	}
	return nil
}

// session returns the session of the client that sends r, or a refusal.
func (p *Proxy) session(r *http.Request) (*session, *refusal) {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return nil, refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
				"the API proxy does not impersonate: a run acts as its operator, or not at all")
		}
	}
	token, ok := bearer(r.Header)
	if ok {
		if s := p.sessions.find(token); s != nil {
			return s, nil
		}
	}
	// Sidecars that ask the API server at another address send the token of their service account, a JWT.
	// It gives them no more than no token would. It cannot be the token of a run that has ended: those have no dots.
	if p.opts.Anonymous != nil && !isRemote(r) && (!ok || strings.Count(token, ".") == 2) {
		return p.anonymous(r), nil
	}
	return nil, refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
		"the API proxy wants the token of a run in progress: use the kubeconfig of the run (KUBECONFIG, K8S_AUTH_KUBECONFIG)")
}

// websocketBearer begins the subprotocol in which a client in a browser, which cannot
// set headers, presents a token.
const websocketBearer = "base64url.bearer.authorization.k8s.io."

func bearer(h http.Header) (string, bool) {
	scheme, token, ok := strings.Cut(h.Get("Authorization"), " ")
	if ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), true
	}
	for _, offered := range h.Values("Sec-Websocket-Protocol") {
		for protocol := range strings.SplitSeq(offered, ",") {
			if encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), websocketBearer); ok {
				token, err := base64.RawURLEncoding.DecodeString(encoded)
				return string(token), err == nil
			}
		}
	}
	return "", false
}

// stripIdentity removes the client's identity headers from an outgoing request;
// the transport adds the operator's credentials.
func stripIdentity(h http.Header) {
	h.Del("Authorization")
	h.Del("Cookie")
	for name := range h {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Forwarded-") {
			h.Del(name)
		}
	}
	var protocols []string
	for _, offered := range h.Values("Sec-Websocket-Protocol") {
		for protocol := range strings.SplitSeq(offered, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, websocketBearer) {
				protocols = append(protocols, protocol)
			}
		}
	}
	if len(protocols) > 0 {
		h.Set("Sec-Websocket-Protocol", strings.Join(protocols, ", "))
	} else {
		h.Del("Sec-Websocket-Protocol")
	}
}

// anonymous returns the session of a client without a token, where that is allowed.
// Like ansible-operator's clients, it names the owner of the objects that it creates
// in its user name. That name is not checked.
func (p *Proxy) anonymous(r *http.Request) *session {
	p.opts.Metrics.AnonymousRequest()
	user, _, _ := r.BasicAuth()
	var g Grant
	if owner, ok := ownerTag(user); ok {
		g = p.opts.Anonymous(owner)
		g.Owner = owner
	}
	g.RunID = "anonymous"
	s := newSession(g)
	// A session has one request.
	s.room, s.answers, s.marks, s.documents, s.notices = p.all.room, p.all.answers, p.all.marks, p.all.documents, p.all.notices
	return s
}

// ownerTag reads the user name of ansible-operator's kubeconfigs.
func ownerTag(user string) (Owner, bool) {
	data, err := base64.URLEncoding.DecodeString(user)
	if err != nil {
		if data, err = base64.StdEncoding.DecodeString(user); err != nil {
			return Owner{}, false
		}
	}
	var tag struct {
		APIVersion, Kind, Name, UID, Namespace string
	}
	if json.Unmarshal(data, &tag) != nil || tag.Kind == "" || tag.Name == "" || tag.UID == "" {
		return Owner{}, false
	}
	gv, err := schema.ParseGroupVersion(tag.APIVersion)
	if err != nil || gv.Version == "" {
		return Owner{}, false
	}
	return Owner{
		GVK: gv.WithKind(tag.Kind), Namespace: tag.Namespace, Name: tag.Name, UID: types.UID(tag.UID),
	}, true
}
