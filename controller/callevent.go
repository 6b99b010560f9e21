package controller

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rolewright/rolewright/internal/text"
)

// maxEvents is how many Events one run may report.
const maxEvents = 20

// Limits of an Event, as the API server sets them.
const (
	maxEventNote   = 1024
	maxEventReason = 128
)

var eventReasonForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// eventCall is the request of the module event.
type eventCall struct {
	Type    string       `json:"type"`
	Reason  string       `json:"reason"`
	Message string       `json:"message"`
	Related *relatedCall `json:"related"`
	// Check asks only whether the Event could be reported.
	Check bool `json:"check"`
}

type relatedCall struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

func (e eventCall) validate() error {
	switch {
	case e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning:
		return badCall("type: %.40q is neither Normal nor Warning", e.Type)
	case len(e.Reason) > maxEventReason || !eventReasonForm.MatchString(e.Reason):
		return badCall("reason: %.150q is not one word in CamelCase of at most %d letters, as BackupTaken is", e.Reason, maxEventReason)
	case e.Message == "":
		return badCall("message: it is empty")
	case e.Related != nil && (e.Related.Kind == "" || e.Related.Name == "" || len(e.Related.Kind)+len(e.Related.Name)+len(e.Related.Namespace)+len(e.Related.APIVersion) > maxEventNote):
		return badCall("related: kind and name are missing, or too long")
	}
	return nil
}

// event creates an Event about the run's object.
func (c *calls) event(ctx context.Context, body []byte) (any, error) {
	var call eventCall
	if err := decodeCall(body, &call); err != nil {
		return nil, err
	}
	if err := call.validate(); err != nil {
		return nil, err
	}
	if call.Check || c.check || c.r.client == nil {
		return changed(), nil
	}
	if !c.mayReport() {
		return nil, apierrors.NewTooManyRequestsError(fmt.Sprintf("this run has reported %d Events, and may report no more", maxEvents))
	}
	event, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.newEvent(call))
	if err != nil {
		return nil, fmt.Errorf("encode the Event: %w", err)
	}
	namespace, _, _ := unstructured.NestedString(event, "metadata", "namespace")
	_, err = c.r.set.content.Resource(eventsv1.SchemeGroupVersion.WithResource("events")).Namespace(namespace).
		Create(ctx, &unstructured.Unstructured{Object: event}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return nil, apierrors.NewForbidden(eventsv1.Resource("events"), "",
			fmt.Errorf("grant the operator create on events in group %q, namespace %q", eventsv1.GroupName, namespace))
	} else if err != nil {
		return nil, err
	}
	return changed(), nil
}

// mayReport counts an Event, and returns false if the run has reported too many.
func (c *calls) mayReport() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	return c.events <= maxEvents
}

// newEvent returns the Event that a role reports, with values of Secrets masked.
func (c *calls) newEvent(call eventCall) *eventsv1.Event {
	instance, _ := os.Hostname() // only a hint where to look
	// Events about cluster-scoped objects are in the default namespace.
	namespace := cmp.Or(c.owner.Namespace, metav1.NamespaceDefault)
	const room = 200 // for what the API server appends
	event := &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: strings.TrimRight(text.Cut(c.owner.Name, room), ".-") + "-", Namespace: namespace},
		EventTime:  metav1.NewMicroTime(c.r.now()),
		Type:       call.Type, Reason: call.Reason, Action: "Run", Note: text.Cut(c.masker.Mask(call.Message), maxEventNote),
		ReportingController: reportingController, ReportingInstance: cmp.Or(text.Cut(instance, 128), "unknown"),
		Regarding: corev1.ObjectReference{
			APIVersion: c.about.Object.APIVersion, Kind: c.owner.GVK.Kind, Namespace: c.owner.Namespace, Name: c.owner.Name, UID: c.owner.UID,
		},
	}
	if r := call.Related; r != nil {
		event.Related = &corev1.ObjectReference{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	}
	return event
}
