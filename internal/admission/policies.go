// Package admission turns the webhooks of watches into the objects that the API server needs
// for them. It knows neither clusters nor flags.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/watches"
)

// Namer returns the name of a kind's resource, in lower case and plural; an error if it is
// not known.
type Namer func(schema.GroupVersionKind) (string, error)

// Policies returns the admission policies for the expressions of the watches, each followed
// by its binding. They apply to the namespaces, or to all if there are none.
func Policies(watched []watches.Watch, namespaces []string, resource Namer) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	used := map[string]int{}
	for _, w := range watched {
		if w.Webhooks.IsZero() {
			continue
		}
		plural, err := resource(w.GVK)
		if err != nil {
			return nil, err
		}
		// The kind is in the name, so that operators for other kinds use other names.
		p := policy{watch: w, name: ConfigurationName(w.GVK.GroupKind(), plural), resource: plural, namespaces: namespaces}
		if used[p.name]++; used[p.name] > 1 {
			p.name = fmt.Sprintf("%s-%d", p.name, used[p.name])
		}
		for _, o := range p.objects() {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				return nil, fmt.Errorf("encode the policy %s: %w", p.name, err)
			}
			delete(fields, "status")
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
	}
	return objects, nil
}

type policy struct {
	watch          watches.Watch
	name, resource string
	namespaces     []string
}

func (p policy) objects() []any {
	var objects []any
	fail := admissionv1.Fail
	meta := metav1.ObjectMeta{Name: p.name}
	rules := slices.DeleteFunc(slices.Clone(p.watch.Webhooks.Validate), func(v watches.Validation) bool { return v.Command != nil })
	if len(rules) > 0 {
		spec := admissionv1.ValidatingAdmissionPolicySpec{FailurePolicy: &fail, MatchConstraints: p.matches(), MatchConditions: conditions(p.watch.Selector)}
		for _, r := range rules {
			spec.Validations = append(spec.Validations, admissionv1.Validation{Expression: r.Rule, Message: r.Message})
		}
		objects = append(objects,
			&admissionv1.ValidatingAdmissionPolicy{TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: meta, Spec: spec},
			&admissionv1.ValidatingAdmissionPolicyBinding{TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}})
	}
	changes := slices.DeleteFunc(slices.Clone(p.watch.Webhooks.Mutate), func(m watches.Mutation) bool { return m.Command != nil })
	if len(changes) > 0 {
		spec := admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy: &fail, MatchConstraints: p.matches(), MatchConditions: conditions(p.watch.Selector), ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		}
		for _, m := range changes {
			mutation := admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: m.Apply}}
			if m.JSONPatch != "" {
				mutation = admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: m.JSONPatch}}
			}
			spec.Mutations = append(spec.Mutations, mutation)
		}
		objects = append(objects,
			&admissionv1.MutatingAdmissionPolicy{TypeMeta: typeMeta("MutatingAdmissionPolicy"), ObjectMeta: meta, Spec: spec},
			&admissionv1.MutatingAdmissionPolicyBinding{TypeMeta: typeMeta("MutatingAdmissionPolicyBinding"), ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name,
			}})
	}
	return objects
}

// matches selects creations and updates of the objects of the watch, in all versions of the
// kind: the API server converts them. It does not select deletions or updates of the status.
func (p policy) matches() *admissionv1.MatchResources {
	gvk, equivalent := p.watch.GVK, admissionv1.Equivalent
	m := &admissionv1.MatchResources{
		MatchPolicy: &equivalent, ObjectSelector: &p.watch.Selector, NamespaceSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{gvk.Group}, APIVersions: []string{gvk.Version}, Resources: []string{p.resource}},
		}}},
	}
	if len(p.namespaces) > 0 {
		m.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: p.namespaces}}
	}
	return m
}

// conditions returns conditions that exempt from a policy:
//   - changes other than of the spec, so that finalizers and annotations, including the operator's
//     own, can be written on an object that is older than a rule and breaks it. A change of a label
//     in the selector is not exempt: else an object could be created without the label, unchecked,
//     and get the label later;
//   - an object that is being deleted, if it has no spec. If it has one, changes are checked, so
//     that the finalizer run gets no unchecked spec;
//   - an object that no longer matches the selector: the API server also asks about objects that
//     matched before.
func conditions(selector metav1.LabelSelector) []admissionv1.MatchCondition {
	changed := "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"
	var selected []string
	for _, r := range requirements(selector) {
		changed += fmt.Sprintf(" || object.metadata.?labels[?%[1]q] != oldObject.metadata.?labels[?%[1]q]", r.Key)
		label := fmt.Sprintf("object.metadata.?labels[?%q]", r.Key)
		one := label + ".hasValue()"
		if len(r.Values) > 0 {
			one = fmt.Sprintf("(%s && %s.value() in [%s])", one, label, `"`+strings.Join(r.Values, `", "`)+`"`)
		}
		if r.Operator == metav1.LabelSelectorOpNotIn || r.Operator == metav1.LabelSelectorOpDoesNotExist {
			one = "!" + one
		}
		selected = append(selected, one)
	}
	all := []admissionv1.MatchCondition{
		{Name: "not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp) || has(object.spec) || has(oldObject.spec)"},
		{Name: "spec-changed", Expression: changed},
	}
	if len(selected) > 0 {
		all = append(all, admissionv1.MatchCondition{Name: "selected", Expression: strings.Join(selected, " && ")})
	}
	return all
}

// requirements returns the requirements of the selector: the expressions, then the labels in
// order.
func requirements(selector metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	all := slices.Clone(selector.MatchExpressions)
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{selector.MatchLabels[key]}})
	}
	return all
}
