package proxy

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// confine refuses requests that leave the owner's namespace, if the run is
// confined to it. Of the cluster the run sees discovery and its own permissions.
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
