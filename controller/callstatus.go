package controller

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientretry "k8s.io/client-go/util/retry"

	"github.com/rolewright/rolewright/controller/status"
)

// statusCall is the request of the module status.
type statusCall struct {
	Fields     map[string]any  `json:"fields"`
	Conditions []conditionCall `json:"conditions"`
	// Check asks only what would change.
	Check bool `json:"check"`
}

type conditionCall struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Remove  bool   `json:"remove"`
}

// statusAnswer is the answer to a statusCall.
type statusAnswer struct {
	Changed bool `json:"changed"`
	// Dropped are the fields that the schema of the kind does not keep.
	Dropped []string `json:"dropped,omitempty"`
}

// status merges what a role wants into the status of the run's object.
func (c *calls) status(ctx context.Context, body []byte) (any, error) {
	var call statusCall
	if err := decodeCall(body, &call); err != nil {
		return nil, err
	}
	wish := status.Wish{Fields: call.Fields}
	for _, cond := range call.Conditions {
		cond.Message = c.masker.Mask(cond.Message)
		wish.Conditions = append(wish.Conditions, status.Condition(cond))
	}
	if err := wish.Check(c.r.watch.ManageStatus); err != nil {
		return nil, badCall("%v", err)
	}
	if c.r.client == nil {
		// A run without an operator does not write to its object.
		return statusAnswer{Changed: true}, nil
	}
	if !c.r.res.hasStatus {
		return nil, badCall("%s has no status subresource: add subresources.status to its CustomResourceDefinition", c.owner.GVK.Kind)
	}
	var answer statusAnswer
	err := clientretry.OnError(clientretry.DefaultBackoff, apierrors.IsConflict, func() error {
		obj, err := c.object(ctx)
		if err != nil {
			return err
		}
		before, _ := obj.Object["status"].(map[string]any)
		after := wish.Merge(before, c.about.Generation, c.r.now())
		if answer.Changed = !reflect.DeepEqual(before, after) && len(before)+len(after) > 0; !answer.Changed || call.Check || c.check {
			return nil
		}
		if err := c.r.sendStatus(ctx, obj, after); err != nil {
			return err
		}
		stored, _ := obj.Object["status"].(map[string]any)
		answer.Dropped = dropped(call.Fields, stored)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// dropped returns the fields of a wish that are missing in the status that the API server
// stored.
func dropped(fields, stored map[string]any) []string {
	var names []string
	for name, v := range fields {
		if _, there := stored[name]; !there && v != nil {
			names = append(names, name)
		}
	}
	return names
}

// object reads the run's object. It fails if another object has its name by now.
func (c *calls) object(ctx context.Context) (*unstructured.Unstructured, error) {
	obj := c.r.newObject()
	obj.SetNamespace(c.owner.Namespace)
	obj.SetName(c.owner.Name)
	obj.SetUID(c.owner.UID)
	err := c.r.readAgain(ctx, obj)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewResourceExpired("the object of this run is gone: " + err.Error())
	}
	return obj, err
}
