package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/rbac"
)

// Kind is a watched kind, and what the operator expects of it.
type Kind struct {
	schema.GroupVersionKind
	// Status says whether the operator writes the status.
	Status bool
	// Replaced returns the variables of the content that fields of the spec
	// replace, other than the given ones; nil if there is no content.
	Replaced func(declared []string) []string
}

// CheckKind checks whether a kind is installed, with a status subresource, and with
// a schema that keeps the fields that users and the operator write. It reads only
// what every user of the cluster may read.
func CheckKind(ctx context.Context, c kubernetes.Interface, k Kind) []Finding {
	f := Finding{Check: "kind " + k.Kind, State: OK}
	list, err := c.Discovery().ServerResourcesForGroupVersion(k.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		f.State, f.Found = LeftOut, fmt.Sprintf("the cluster does not list the resources of %s: %v", k.GroupVersion(), err)
		return []Finding{f}
	}
	var names []string
	plural := ""
	if list != nil {
		for _, r := range list.APIResources {
			names = append(names, r.Name)
			if r.Kind == k.Kind && !strings.Contains(r.Name, "/") {
				plural = r.Name
			}
		}
	}
	if plural == "" {
		f.State, f.Found = Failed, k.GroupVersion().String()+" has no such kind"
		f.Remedy = "install its CustomResourceDefinition; until then the operator waits for it"
		return []Finding{f}
	}
	f.Found = fmt.Sprintf("%s.%s is installed", plural, k.GroupVersion())
	found := []Finding{f}
	if k.Status && !slices.Contains(names, plural+"/status") {
		found = append(found, Finding{
			Check: f.Check, State: Failed, Found: "it has no status subresource: runs are not recorded, and every restart runs every object",
			Remedy: "add \"subresources: {status: {}}\" to the version in its CustomResourceDefinition, or say manageStatus: false in the watch",
		})
	}
	return append(found, checkSchema(ctx, c, k)...)
}

func checkSchema(ctx context.Context, c kubernetes.Interface, k Kind) []Finding {
	f := Finding{Check: "kind " + k.Kind}
	published, err := discovery.PublishedSchema(ctx, c.Discovery().RESTClient(), k.GroupVersionKind)
	if errors.Is(err, discovery.ErrNotPublished) {
		f.State, f.Found = LeftOut, "the schema: the cluster does not publish it"
		return []Finding{f}
	}
	var s Schema
	var data []byte
	if err == nil {
		data, err = json.Marshal(published)
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		f.State, f.Found = LeftOut, fmt.Sprintf("the schema: %v", err)
		return []Finding{f}
	}
	return k.judge(f, s)
}

// judge reports the fields that the schema drops, and harmful ones that it keeps.
func (k Kind) judge(f Finding, s Schema) []Finding {
	var found []Finding
	if declared, keeps := s.KeepsInSpec(); keeps && k.Replaced != nil {
		if names := k.Replaced(declared); len(names) > 0 {
			f.State = Note
			f.Found, f.Remedy = Replaceable(names)
			found = append(found, f)
		}
	}
	if s.keeps() {
		return found
	}
	if s.namesNothing() {
		f.State, f.Found = Failed, "its schema declares no field of the spec: the API server drops all fields of the spec"
		f.Remedy = "declare the fields in its CustomResourceDefinition, or set x-kubernetes-preserve-unknown-fields: true on spec"
		found = append(found, f)
	}
	status := s.Properties["status"]
	if ansible := status.Properties["ansible"]; k.Status && !status.keeps() && !ansible.keeps() {
		f.State, f.Found = Note, "its schema drops status.ansible: there is no progress and no summary, and every restart runs every object"
		f.Remedy = "set x-kubernetes-preserve-unknown-fields: true on status.ansible, or on the whole status"
		found = append(found, f)
	}
	return found
}

// CheckPermissions asks the cluster about each of the needs in each of the
// namespaces; an empty list means all namespaces.
func CheckPermissions(ctx context.Context, c kubernetes.Interface, needs rbac.Needs, namespaces []string) ([]Finding, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var found []Finding
	asked := 0
	for _, namespace := range namespaces {
		lacking, err := missing(ctx, c, needs, namespace)
		if err != nil {
			return nil, err
		}
		asked += len(needs)
		for _, text := range lacking {
			found = append(found, Finding{
				Check: "permissions", State: Failed, Found: text,
				Remedy: "grant them; \"rolewright generate rbac\" writes all that is needed",
			})
		}
	}
	if asked == 0 {
		return nil, errors.New("nothing is needed")
	}
	if len(found) == 0 {
		found = append(found, Finding{Check: "permissions", State: OK, Found: fmt.Sprintf("all %d that the watches and their content need, as far as the content tells", asked)})
	}
	return found, nil
}

// missing asks about each of the needs in a namespace, or in all if it is empty, and returns
// the needs that are not granted.
func missing(ctx context.Context, c kubernetes.Interface, needs rbac.Needs, namespace string) ([]string, error) {
	lacking := rbac.Needs{}
	for need := range needs {
		in := namespace
		if !need.Namespaced {
			in = metav1.NamespaceAll
		}
		review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: in, Verb: need.Verb, Group: need.Group, Resource: need.Resource, Subresource: need.Subresource,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("ask for permissions: %w", err)
		}
		if !review.Status.Allowed {
			lacking[need] = struct{}{}
		}
	}
	where := "in all namespaces"
	if namespace != "" {
		where = "in the namespace " + namespace
	}
	var said []string
	for _, rule := range lacking.Rules() {
		group := "the core group"
		if rule.APIGroups[0] != "" {
			group = fmt.Sprintf("the group %q", rule.APIGroups[0])
		}
		said = append(said, fmt.Sprintf("%s on %s in %s are missing %s",
			strings.Join(rule.Verbs, ", "), strings.Join(rule.Resources, ", "), group, where))
	}
	return said, nil
}

// Service is a need of the operator itself, whatever it watches.
type Service struct {
	// Name says what the permissions are for.
	Name string
	// Flag is the flag that turns the service on; empty if it is always on, and not necessary.
	// If it is off, missing permissions are only a note.
	Flag string
	On   bool
	// Role is the file of the example that grants the permissions.
	Role      string
	Namespace string
	Needs     rbac.Needs
}

// Lease lists the permissions that leader election needs in a namespace.
func Lease(namespace string, on bool) Service {
	s := Service{Name: "the Lease of leader election", Flag: "--leader-elect", On: on, Role: "rbac/leader_election_role.yaml", Namespace: namespace, Needs: rbac.Needs{}}
	s.Needs.Add(rbac.Need{Group: "coordination.k8s.io", Resource: "leases", Namespaced: true}, "get", "create", "update")
	return s
}

// Shards lists the permissions that replicas need in a namespace to share the objects, in addition
// to those of leader election.
func Shards(namespace string) Service {
	s := Service{Name: "the Leases of replicas that share the objects", Flag: "--shards", On: true, Role: "shards/kustomization.yaml", Namespace: namespace, Needs: rbac.Needs{}}
	s.Needs.Add(rbac.Need{Group: "coordination.k8s.io", Resource: "leases", Namespaced: true}, "list", "delete")
	return s
}

// Reviews lists the permissions that are needed to check who reads the metrics.
func Reviews(on bool) Service {
	s := Service{Name: "the reviews of those who read the metrics", Flag: "--metrics-require-rbac", On: on, Role: "rbac/metrics_auth_role.yaml", Needs: rbac.Needs{}}
	s.Needs.Add(rbac.Need{Group: "authentication.k8s.io", Resource: "tokenreviews"}, "create")
	s.Needs.Add(rbac.Need{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, "create")
	return s
}

// Events lists the permissions to report failed runs as Events.
func Events(namespace string) Service {
	return Service{Name: "the report of failed runs as Events", Role: "rbac/role.yaml", Namespace: namespace, Needs: rbac.Events()}
}

// Check asks the cluster whether the permissions are granted.
func (s Service) Check(ctx context.Context, c kubernetes.Interface) ([]Finding, error) {
	lacking, err := missing(ctx, c, s.Needs, s.Namespace)
	if err != nil {
		return nil, err
	}
	if len(lacking) == 0 {
		return []Finding{{Check: "permissions", State: OK, Found: "those for " + s.Name}}, nil
	}
	f := Finding{Check: "permissions", State: Note, Remedy: "grant them, as config/" + s.Role + " of the example does"}
	if s.On {
		f.State = Failed
	}
	var found []Finding
	for _, text := range lacking {
		f.Found = text + ": " + cmp.Or(s.Flag, s.Name) + " needs them"
		found = append(found, f)
	}
	return found, nil
}
