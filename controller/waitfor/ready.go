package waitfor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ready reports whether an object is ready. Kinds of Kubernetes are ready as their
// documentation defines it; others if their condition Ready is True.
func ready(obj *unstructured.Unstructured) (bool, string) {
	if obj.GetDeletionTimestamp() != nil {
		return false, "it is being deleted"
	}
	observed, there, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "observedGeneration")
	if there && integer(observed) < obj.GetGeneration() {
		return false, "its controller has not yet observed its current generation"
	}
	status := func(field string) int64 { return number(obj, 0, "status", field) }
	replicas := number(obj, 1, "spec", "replicas")
	switch obj.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return counted(there, replicas, status("updatedReplicas"), status("availableReplicas"), status("replicas"))
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		if n := status("readyReplicas"); n < replicas {
			return false, fmt.Sprintf("%d of %d Pods are ready", n, replicas)
		}
		updated := status("updatedReplicas")
		wanted := max(replicas-number(obj, 0, "spec", "updateStrategy", "rollingUpdate", "partition"), 0)
		if strategy, _, _ := unstructured.NestedString(obj.Object, "spec", "updateStrategy", "type"); strategy == "OnDelete" {
			wanted = 0 // Pods are updated only when someone deletes them
		}
		return counted(there, wanted, updated, updated, updated)
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		wanted := status("desiredNumberScheduled")
		return counted(there, wanted, status("updatedNumberScheduled"), status("numberAvailable"), wanted)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return condition(obj, "Complete", "True")
	case schema.GroupKind{Kind: "Pod"}:
		if phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase"); phase == "Succeeded" {
			return true, ""
		}
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return phase == "Bound", fmt.Sprintf("its phase is %.40q", phase)
	}
	return condition(obj, "Ready", "True")
}

// counted compares numbers of Pods. observed is false if the controller has not written
// a status yet.
func counted(observed bool, wanted, updated, available, all int64) (bool, string) {
	switch {
	case !observed:
		return false, "its controller has not yet observed it"
	case updated < wanted:
		return false, fmt.Sprintf("%d of %d Pods are up to date", updated, wanted)
	case available < wanted:
		return false, fmt.Sprintf("%d of %d Pods are available", available, wanted)
	case all > updated:
		return false, fmt.Sprintf("%d old Pods are left", all-updated)
	}
	return true, ""
}

func number(obj *unstructured.Unstructured, otherwise int64, path ...string) int64 {
	v, there, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	if !there {
		return otherwise
	}
	return integer(v)
}
