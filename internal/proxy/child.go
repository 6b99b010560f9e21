package proxy

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Child is an object that a run writes.
type Child struct {
	Resource schema.GroupVersionResource
	// Kind is the kind's name; empty if it is neither in the body nor in discovery.
	Kind string
	// Subresource is the written subresource; empty for the object itself.
	Subresource string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
	// UID and ResourceVersion are those of the stored object; empty before it
	// is stored, and if the answer does not contain them.
	UID             types.UID
	ResourceVersion string
	// Generation is 0 for kinds without generations.
	Generation int64
}

// Writes is notified of what a run writes to some objects, no matter who owns them. Its
// methods are called concurrently and do not block.
type Writes interface {
	// Wants reports whether Stored is called for writes of an object. The name is empty
	// if the request does not name it.
	Wants(resource schema.GroupVersionResource, namespace, name string) bool
	// Stored is called once a write has succeeded and made a new version.
	Stored(c Child)
}

// Written is a write of a run that was answered, by the API server or by the proxy.
type Written struct {
	// Child is the written object. Its name is empty for a write of many objects, and for an
	// object that was refused before it had a name.
	Child
	// Verb is create, update, patch, delete, deletecollection, or the verb of a connection
	// such as exec.
	Verb string
	// Code is the HTTP status of the answer; 0 if there was none, or the proxy refused the
	// write.
	Code   int
	DryRun bool
	// Unchanged is true if the write is known to have changed nothing.
	Unchanged bool
	// Fields are some of the fields that the write has changed, if they are known.
	Fields []string
}

// Tracker is notified of what a run does to the objects of its owner. Its methods
// are called concurrently and do not block.
type Tracker interface {
	// Expect is called before a write is forwarded, if the written object will have
	// the owner's mark. The name is empty if the API server generates it. If the API server
	// does not have the kind, Expect is called later, before Wrote and before the client gets
	// the answer, and only if the write was not refused.
	Expect(c Child)
	// Found is called for each object that the run has read and that has the owner's
	// mark, if the answer is in JSON and not too large.
	Found(c Child)
	// Wrote is called once such a write has succeeded and made a new version.
	// It is also called for writes of subresources, no matter who owns the object.
	Wrote(c Child)
	// Deleted is called once a delete request of the run has been accepted,
	// for every object that the answer names, no matter who owns it.
	Deleted(c Child)
}
