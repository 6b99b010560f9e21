package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const cups = "---\napiVersion: cups.example.com/v1\nkind: Cup\nmetadata: {name: it, namespace: ns}\n"

// Objects of lists do not hide each other, nor do objects of two groups with the same kind and name.
func TestBoth(t *testing.T) {
	list := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: " + name + "}}]\n"
	}
	got := both(list("a")+cups, list("a")+list("b")+cups+strings.Replace(cups, "cups.", "saucers.", 1))
	objects, err := parse(got)
	if err != nil || len(objects) != 4 || objects["ConfigMap b"] == nil || objects["Cup ns/it'"] == nil {
		t.Errorf("%v\n%s", err, got)
	}
}

// If one object of a list is missing, the others are still deleted.
func TestUninstall_List(t *testing.T) {
	c := newCluster(t)
	items := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: ns}}"
	c.release("apiVersion: v1\nkind: List\nitems: [" + items + "]\n")
	delete(c.objects, record)
	delete(c.objects, configMaps+"a")
	c.finalize()
	if c.get(configMaps+"b") != nil {
		t.Error("b is left")
	}
}

// If users have written things into the status that are no objects, they do not block the deletion of the object.
func TestUninstall_NoObjects(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	delete(c.objects, record)
	manifest := "---\n" + chartOfTwo
	for _, document := range []string{
		"apiVersion: v1", "kind: ConfigMap\nmetadata: {name: a}", "apiVersion: v1\nkind: ConfigMap", "apiVersion: a/b/c\nkind: ConfigMap\nmetadata: {name: a}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a/b}", "apiVersion: v1\nkind: List\nitems: [a, {}]",
	} {
		manifest += "---\n" + document + "\n"
	}
	c.change(itself, func(is *unstructured.Unstructured) {
		c.try(unstructured.SetNestedField(is.Object, manifest, "status", "deployedRelease", "manifest"))
	})
	c.finalize()
	if c.get(roles+"it") != nil || c.get(configMaps+"it") != nil {
		t.Error("something is left")
	}
}
