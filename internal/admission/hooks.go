package admission

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rolewright/rolewright/internal/watches"
)

// ConvertPath is the path at which the API server asks for conversions.
const ConvertPath = "/convert"

// Hook is a command that the API server asks, with the path at which it asks.
type Hook struct {
	watches.Call
	// Path is relative to the address of the operator's server.
	Path string
	// Mutates is true if the answer may change the object.
	Mutates bool
	// Watch is the watch that has the command.
	Watch watches.Watch

	name string
}

// Hooks returns the commands of the watches, each with a path of its own.
func Hooks(watched []watches.Watch) []Hook {
	var hooks []Hook
	used := map[string]bool{}
	unique := func(text string) string {
		is := text
		for n := 2; used[is]; n++ {
			is = fmt.Sprintf("%s-%d", text, n)
		}
		used[is] = true
		return is
	}
	add := func(verb string, w watches.Watch, call watches.Call) {
		if call.Command == nil {
			return
		}
		// The API server accepts only paths in lower case.
		kind := strings.ToLower(fmt.Sprintf("/%s/%s/%s/%s/", verb, cmp.Or(w.GVK.Group, "core"), w.GVK.Version, w.GVK.Kind))
		hooks = append(hooks, Hook{
			Call: call, Path: unique(kind + digest(w, call)), Mutates: verb == "mutate", Watch: w,
			name: strings.TrimPrefix(unique("name "+kind+title(call)), "name "+kind),
		})
	}
	for _, w := range watched {
		for _, v := range w.Webhooks.Validate {
			add("validate", w, v.Call)
		}
		for _, m := range w.Webhooks.Mutate {
			add("mutate", w, m.Call)
		}
	}
	return hooks
}

// digest identifies a command of a kind by the command line and the objects for which it is asked: so an older
// configuration in the cluster is answered by the same command as before, or not at all. It is the same on each machine.
// It leaves out operations and conditions, which are the same for all commands of a watch, and the namespaces, which are
// known only when the configuration is generated.
func digest(w watches.Watch, call watches.Call) string {
	text, _ := json.Marshal([]any{call.Words, w.Selector}) // it has only strings, which can always be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// title returns the name of a command, for people. It does not depend on the arguments, so that metrics continue when these
// change, and a configuration that is applied again keeps the authority that the operator has written: lists of webhooks
// are merged by name.
func title(call watches.Call) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(strings.Join(call.Words[:min(len(call.Words), 1)], ""))))
	return cmp.Or(strings.Trim(name[:min(len(name), maxTitle)], "-"), "command")
}

// maxTitle leaves room for a number in a DNS label.
const maxTitle = validation.DNS1123LabelMaxLength - 10

// NeedServer reports whether the API server has to ask the operator for any of the watches.
func NeedServer(watched []watches.Watch) bool {
	return slices.ContainsFunc(watched, func(w watches.Watch) bool { return w.Webhooks.NeedServer() })
}

// Reach says how the API server reaches the operator: by a Service, or by an address.
type Reach struct {
	Namespace, Service string
	// URL is the address; empty if a Service is used.
	URL string
}

// ParseReach parses NAMESPACE/SERVICE, or an address with https.
func ParseReach(text string) (Reach, error) {
	if u, err := url.Parse(text); err == nil && u.Scheme == "https" && u.Host != "" {
		if u.Path != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
			return Reach{}, fmt.Errorf("%q has more than a host and a port", text)
		}
		return Reach{URL: text}, nil
	}
	namespace, name, _ := strings.Cut(text, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		return Reach{}, errors.New("it is neither NAMESPACE/SERVICE nor an address such as https://127.0.0.1:9443")
	}
	return Reach{Namespace: namespace, Service: name}, nil
}

// Host returns the name in the operator's certificate.
func (r Reach) Host() string {
	if u, err := url.Parse(r.URL); err == nil && r.URL != "" {
		return u.Hostname()
	}
	return r.Service + "." + r.Namespace + ".svc"
}

func (r Reach) client(path string) admissionv1.WebhookClientConfig {
	if r.URL != "" {
		address := r.URL + path
		return admissionv1.WebhookClientConfig{URL: &address}
	}
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: r.Namespace, Name: r.Service, Path: &path}}
}

// Trust sets the authorities that a webhook trusts, if the webhook asks this operator.
func (r Reach) Trust(c *admissionv1.WebhookClientConfig, authorities []byte) {
	if s := c.Service; s != nil && r.URL == "" && s.Namespace == r.Namespace && s.Name == r.Service || c.URL != nil && r.URL != "" && strings.HasPrefix(*c.URL, r.URL+"/") {
		c.CABundle = authorities
	}
}

// SameTarget tells whether two conversions ask the same server.
func SameTarget(a, b *apiextensionsv1.CustomResourceConversion) bool {
	if a.Webhook == nil || a.Webhook.ClientConfig == nil {
		return false
	}
	x, y := *a.Webhook.ClientConfig, *b.Webhook.ClientConfig
	x.CABundle, y.CABundle = nil, nil
	return equality.Semantic.DeepEqual(x, y)
}

// Conversion returns the part of a CustomResourceDefinition that makes the API server ask for conversions.
func (r Reach) Conversion(authorities []byte) *apiextensionsv1.CustomResourceConversion {
	c := r.client(ConvertPath)
	port := int32(443)
	config := &apiextensionsv1.WebhookClientConfig{URL: c.URL, CABundle: authorities}
	if c.Service != nil {
		config.Service = &apiextensionsv1.ServiceReference{Namespace: c.Service.Namespace, Name: c.Service.Name, Path: c.Service.Path, Port: &port}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}},
	}
}

// ConfigurationName returns the name of both webhook configurations for a kind.
func ConfigurationName(gk schema.GroupKind, resource string) string {
	return strings.TrimSuffix(strings.ToLower(resource+"."+gk.Group), ".")
}

// Configurations returns the ValidatingWebhookConfigurations and MutatingWebhookConfigurations
// for the commands of the watches, at most one of each for a kind.
func Configurations(watched []watches.Watch, namespaces []string, reach Reach, resource Namer) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	of := map[string][]any{} // by kind and name
	for _, h := range Hooks(watched) {
		plural, err := resource(h.Watch.GVK)
		if err != nil {
			return nil, err
		}
		hook, err := runtime.DefaultUnstructuredConverter.ToUnstructured(h.webhook(plural, namespaces, reach))
		if err != nil {
			return nil, fmt.Errorf("encode the webhook of %s: %w", h.Watch.GVK, err)
		}
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(admissionv1.SchemeGroupVersion.String())
		o.SetKind("ValidatingWebhookConfiguration")
		o.SetName(ConfigurationName(h.Watch.GVK.GroupKind(), plural))
		if h.Mutates {
			o.SetKind("MutatingWebhookConfiguration")
			hook["reinvocationPolicy"] = string(admissionv1.IfNeededReinvocationPolicy)
		}
		id := o.GetKind() + " " + o.GetName()
		if of[id] == nil {
			objects = append(objects, o)
		}
		of[id] = append(of[id], hook)
	}
	for _, o := range objects {
		o.Object["webhooks"] = of[o.GetKind()+" "+o.GetName()]
	}
	return objects, nil
}

// webhook returns the hook's entry in a configuration, which selects the same objects as a policy. A mutating webhook has
// the same fields.
func (h Hook) webhook(resource string, namespaces []string, reach Reach) *admissionv1.ValidatingWebhook {
	m := policy{watch: h.Watch, resource: resource, namespaces: namespaces}.matches()
	none, seconds, policy := admissionv1.SideEffectClassNone, int32(h.Timeout.Seconds()), admissionv1.FailurePolicyType(h.FailurePolicy)
	return &admissionv1.ValidatingWebhook{
		Name:         fmt.Sprintf("%s.%s.%s.%s", h.name, h.Watch.GVK.Version, strings.ToLower(resource), cmp.Or(h.Watch.GVK.Group, "core")),
		ClientConfig: reach.client(h.Path), Rules: []admissionv1.RuleWithOperations{m.ResourceRules[0].RuleWithOperations},
		FailurePolicy: &policy, MatchPolicy: m.MatchPolicy, NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector,
		SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"}, MatchConditions: conditions(h.Watch.Selector),
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: kind}
}
