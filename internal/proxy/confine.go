package proxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// confine refuses requests that leave the owner's namespace, if the run is confined
// to it. Outside of it the run has only discovery, its own permissions, and its owner.
func (p *Proxy) confine(s *session, r *http.Request, info *request.RequestInfo) *refusal {
	if !s.OwnNamespaceOnly || p.reaches(s, r, info) {
		return nil
	}
	where := "what is not in a namespace, or in all,"
	switch {
	case !info.IsResourceRequest:
		where = info.Path
	case namespaceOf(info) != "":
		where = "namespace " + info.Namespace
	case info.Namespace != "":
		where = "the Namespace " + info.Namespace + ", which is cluster-scoped,"
	}
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		"the watch of "+s.Owner.GVK.String()+" says ownNamespaceOnly: "+where+" is out of reach of its runs")
}

func (p *Proxy) reaches(s *session, r *http.Request, info *request.RequestInfo) bool {
	switch {
	case !info.IsResourceRequest:
		first, _, _ := strings.Cut(strings.TrimPrefix(info.Path, "/"), "/")
		return r.Method == http.MethodGet && slices.Contains([]string{"api", "apis", "openapi", "version"}, first)
	case namespaceOf(info) != "":
		return info.Namespace == s.Owner.Namespace
	case info.APIGroup == "authorization.k8s.io":
		return strings.HasPrefix(info.Resource, "selfsubject")
	case s.Owner.Namespace != "" || info.Name != s.Owner.Name || info.APIGroup != s.Owner.GVK.Group:
		return false
	}
	// The cluster-scoped object itself.
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	return p.kindOf(r.Context(), gvr) == s.Owner.GVK.Kind
}

// ofRuns matches the names of what the operator makes for runs as Jobs: a Secret and a Job named by the ID of the run, a
// Pod whose name begins with it, and the Secret with the certificate.
var ofRuns = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-.*)?|rolewright-runs)$`)

// keepOff refuses requests for objects that belong to other runs as Jobs, by their names or by their label, whatever the
// owner's namespace: with them a run could act as another run. Lists, watches and deletions of many objects leave them
// out. A run may read its own Job and Pod but not write them: if they were gone, the operator would take the run for
// ended while its container goes on.
func (p *Proxy) keepOff(s *session, r *http.Request, info *request.RequestInfo) *refusal {
	if info.APIGroup == "" && info.Resource == "serviceaccounts" && info.Subresource == "token" && p.opts.JobNamespace != "" && info.Namespace == p.opts.JobNamespace {
		return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "tokens of the accounts in the namespace "+info.Namespace+
			" are out of reach of runs, since runs as Jobs are there: create accounts whose tokens a role needs in another namespace")
	}
	refused := p.reserved(info)
	if refused == nil || strings.Contains(r.URL.Query().Get("labelSelector"), "rolewright.dev/") || ofRuns.MatchString(info.Name) &&
		(info.Resource == "secrets" || writes(r, info) || s.RunID == "" || !strings.HasPrefix(info.Name, s.RunID)) {
		return refused
	}
	leaveOut(r, info)
	return nil
}

// leaveOut makes the API server leave out the objects of runs, by selectors before those of the client, which the
// client's text cannot change. Names and states of Jobs and Pods are no secret.
func leaveOut(r *http.Request, info *request.RequestInfo) {
	if info.Verb != "deletecollection" && (info.Resource != "secrets" || info.Verb != "list" && info.Verb != "watch") {
		return
	}
	query := r.URL.Query()
	add := func(selector, first string) {
		if is := query.Get(selector); is != "" {
			first += "," + is
		}
		query.Set(selector, first)
	}
	add("labelSelector", "!rolewright.dev/run")
	if info.Resource == "secrets" && info.Name == "" { // a request with a name has another name
		add("fieldSelector", "metadata.name!=rolewright-runs")
	}
	r.URL.RawQuery = query.Encode()
}

// keepName refuses to create an object that has, or can get, the name of an object of runs as Jobs: that run could not
// begin, or would take the object for its own. It also refuses to create a Lease with the name of a Lease of the
// election.
func (x *exchange) keepName(contentType string, body []byte) error {
	if x.info.Verb != "create" || x.info.Subresource != "" {
		return nil
	}
	refused, kept := x.p.reserved(x.info), ofRuns.MatchString
	if refused == nil {
		refused, kept = x.p.election(x.info), x.p.elects
	}
	if refused == nil {
		return nil
	}
	var is metav1.PartialObjectMetadata
	switch mediaType(contentType) { // the API server refuses a body that cannot be read
	case runtime.ContentTypeJSON:
		meta, _ := objectbody.Read(body)
		is.Name, is.GenerateName = meta.Name, meta.GenerateName
	case runtime.ContentTypeProtobuf:
		_ = unpack(body, &is)
	default:
		refused.message += "; new ones have to be sent there in JSON or protobuf"
		return refused
	}
	if kept(is.Name) || is.GenerateName != "" && kept(is.GenerateName+"22222") { // as long as the suffix of the API server
		return refused
	}
	return nil
}

// keepLeases refuses writes of the Leases by which replicas know which of them leads and has which shard: otherwise two
// replicas, or none, would run an object. keepName handles a create, whose name is in the body. A deletion of many Leases
// cannot leave them out.
func (p *Proxy) keepLeases(r *http.Request, info *request.RequestInfo) *refusal {
	refused := p.election(info)
	if refused == nil || !writes(r, info) || info.Name != "" && !p.elects(info.Name) || info.Name == "" && info.Verb == "create" {
		return nil
	}
	if info.Name == "" {
		refused.message += "; delete Leases there one by one, by their names"
	}
	return refused
}

// elects reports whether a Lease with the name, in the namespace of the election, belongs to the election.
func (p *Proxy) elects(name string) bool {
	rest, found := strings.CutPrefix(name, p.opts.Election.Name)
	return found && (rest == "" || strings.HasPrefix(rest, "-shard-") || strings.HasPrefix(rest, "-replica-"))
}

// election returns the refusal for a write of Leases that may include those of the election; nil for any other request.
func (p *Proxy) election(info *request.RequestInfo) *refusal {
	is := p.opts.Election
	if is.Name == "" || info.APIGroup != "coordination.k8s.io" || info.Resource != "leases" || info.Namespace != "" && info.Namespace != is.Namespace {
		return nil
	}
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "runs must not write the Leases of the operator's leader election: "+is.Name+", "+
		is.Name+"-shard-… and "+is.Name+"-replica-… in the namespace "+is.Namespace+"; take another name, or another namespace")
}

// reserved returns the refusal for a request for Secrets, Pods or Jobs that may include those of runs; nil for any other
// request.
func (p *Proxy) reserved(info *request.RequestInfo) *refusal {
	if p.opts.JobNamespace == "" || !info.IsResourceRequest || info.Namespace != "" && info.Namespace != p.opts.JobNamespace {
		return nil
	}
	if (info.APIGroup != "" || info.Resource != "secrets" && info.Resource != "pods") && (info.APIGroup != "batch" || info.Resource != "jobs") {
		return nil
	}
	return refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		"the "+info.Resource+" of runs as Jobs in the namespace "+p.opts.JobNamespace+" are out of reach of runs")
}
