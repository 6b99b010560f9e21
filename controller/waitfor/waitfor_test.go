package waitfor

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func TestParse_Refuses(t *testing.T) {
	for _, text := range []string{
		"", "Ready", "ready=x", "condition=", "condition=Ready=", "jsonpath=", "jsonpath=.status", "jsonpath={}", "jsonpath={..a}", "jsonpath={.a..b}",
		"jsonpath={.a[*]}", "jsonpath={.*}", "jsonpath={range .a[*]}{end}", "jsonpath={.a}{.b}", "jsonpath={.a[?(@..b==\"x\")]}", "jsonpath={.a[0:3]}",
		"jsonpath={.a}=b}c",
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestMet(t *testing.T) {
	for _, tt := range []struct {
		goal, object string
		met          bool
		detail       string
	}{
		{"condition=Ready", "status: {conditions: [{type: Ready, status: 'True'}]}", true, ""},
		{"condition=Ready", "status: {conditions: [{type: Ready, status: 'False', message: no disk}]}", false, "no disk"},
		{"condition=Ready=False", "status: {conditions: [{type: Ready, status: 'False'}]}", true, ""},
		{"condition=Ready", "metadata: {generation: 2}\nstatus: {conditions: [{type: Ready, status: 'True', observedGeneration: 1}]}", false, "older generation"},
		{"condition=Ready", "status: {conditions: [1, {type: 2}]}", false, "no condition Ready"},
		{"condition=Ready", "status: odd", false, "no condition Ready"},
		{"jsonpath={.status.phase}=Bound", "status: {phase: Bound}", true, ""},
		{"jsonpath={.status.phase}=Bound", "status: {phase: Pending}", false, `it is "Pending"`},
		{"jsonpath={.data.a}=b", "apiVersion: v1\nkind: Secret\ndata: {a: c2VjcmV0}", false, "its content is not shown"},
		{"jsonpath={.data.a[0]}", "apiVersion: v1\nkind: Secret\ndata: {a: c2VjcmV0}", false, "its content is not shown"},
		{"jsonpath={.status.count}=3", "status: {count: 3}", true, ""},
		{"jsonpath={.status.lb.ingress[0].ip}", "status: {lb: {ingress: [{ip: 10.0.0.1}]}}", true, ""},
		{"jsonpath={.status.lb.ingress[0].ip}", "status: {}", false, ""},
		{"jsonpath={.status.lb[5].ip}", "status: {lb: []}", false, "cannot be evaluated"},
		{`jsonpath={.status.conditions[?(@.type=="Up")].status}=True`, "status: {conditions: [{type: Up, status: 'True'}]}", true, ""},
		{"ready", "kind: Widget\nstatus: {conditions: [{type: Ready, status: 'True'}]}", true, ""},
		{"ready", "kind: Widget", false, "no condition Ready"},
		{"ready", "kind: Pod\nstatus: {phase: Succeeded}", true, ""},
		{"ready", "kind: PersistentVolumeClaim\nstatus: {phase: Pending}", false, "Pending"},
		{"ready", "kind: PersistentVolumeClaim\nstatus: {phase: Bound}", true, ""},
		{"ready", "apiVersion: batch/v1\nkind: Job\nstatus: {conditions: [{type: Complete, status: 'True'}]}", true, ""},
		{"ready", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {generation: 2}\nspec: {replicas: 2}\n" +
			"status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2}", true, ""},
		{"ready", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {generation: 3}\nspec: {replicas: 2}\n" +
			"status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, availableReplicas: 2}", false, "not yet observed its current generation"},
		{"ready", "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 2}\n" +
			"status: {observedGeneration: 2, replicas: 3, updatedReplicas: 2, availableReplicas: 2}", false, "1 old Pods"},
		{"ready", "apiVersion: apps/v1\nkind: Deployment\nspec: {}\nstatus: {observedGeneration: 1}", false, "0 of 1 Pods are up to date"},
		{"ready", "apiVersion: apps/v1\nkind: Deployment\nspec: {}", false, "not yet observed it"},
		{"ready", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {replicas: 3}\nstatus: {observedGeneration: 1, readyReplicas: 2, updatedReplicas: 3}", false, "2 of 3"},
		{"ready", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {replicas: 3, updateStrategy: {rollingUpdate: {partition: 2}}}\n" +
			"status: {observedGeneration: 1, readyReplicas: 3, updatedReplicas: 1}", true, ""},
		{"ready", "apiVersion: apps/v1\nkind: DaemonSet\nstatus: {observedGeneration: 1, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}",
			false, "1 of 2 Pods are available"},
		{"ready", "kind: Pod\nmetadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {phase: Succeeded}", false, "being deleted"},
	} {
		obj := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON([]byte(tt.object))
		if err == nil {
			err = json.Unmarshal(text, &obj.Object) // as a client reads it: whole numbers are int64
		}
		if err != nil {
			t.Fatal(err)
		}
		goal, err := Parse(tt.goal)
		if err != nil {
			t.Errorf("%s: %v", tt.goal, err)
			continue
		}
		met, detail := goal.Met(obj)
		if met != tt.met || !met && !strings.Contains(detail, tt.detail) {
			t.Errorf("%s of %q: %t, %q; want %t, %q", tt.goal, tt.object, met, detail, tt.met, tt.detail)
		}
	}
}
