package main

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rolewright/rolewright/test/must"
)

// Pods of runs are made of the image of the operator's container, whatever else is in its Pod.
func TestOwnImage(t *testing.T) {
	t.Parallel()
	name := must.Get(os.Hostname())(t)
	for want, containers := range map[string][]corev1.Container{
		"operator:1":             {{Name: "sidecar", Image: "mesh:1"}, {Name: "manager", Image: "operator:1"}},
		"operator:2":             {{Name: "operator", Image: "operator:2"}},
		`no container "manager"`: {{Name: "sidecar", Image: "mesh:1"}, {Name: "operator", Image: "operator:1"}},
	} {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system"}, Spec: corev1.PodSpec{Containers: containers}})
		got, err := ownImage(client, "system")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("the image is %s, want %s", got, want)
		}
	}
	if _, err := ownImage(fake.NewClientset(), ""); err == nil || !strings.Contains(err.Error(), "--job-image") {
		t.Errorf("outside of a Pod the error is %v, want the flag", err)
	}
}
