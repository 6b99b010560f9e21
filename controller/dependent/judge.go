package dependent

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verdict says what an update of an object was.
type verdict int

const (
	// bookkeeping is an update to which nothing has to react.
	bookkeeping verdict = iota
	// statusWrite is an update of the status, and of metadata that was written with it.
	statusWrite
	// changed is an update that the owner may want to undo.
	changed
	// unclear is an update that only a comparison of the content can judge.
	unclear
)

// digest identifies a part of an object's metadata by half a SHA-256.
type digest [16]byte

// facts is what judge needs to know about one version of an object's metadata.
type facts struct {
	generation  int64
	terminating bool
	// visible is the digest of the labels, annotations, owner references and
	// finalizers, except those that status writes have set.
	visible digest
	// status and other are digests of the managed fields: the entries of the
	// status subresource, and those of all other writes.
	status, other digest
	// plainStatus is true if other writes manage fields of the status, too, for example because the
	// kind has no status subresource: then writes of the status also raise the generation.
	plainStatus bool
}

// factsOf returns the facts of an object. It is a pure function.
func factsOf(o metav1.Object) facts {
	var status, other []metav1.ManagedFieldsEntry
	plainStatus := false
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "status" {
			status = append(status, entry)
		} else {
			other = append(other, entry)
			plainStatus = plainStatus || bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:status"`))
		}
	}
	labels, annotations := withoutStatus(o.GetLabels(), o.GetAnnotations(), status, other)
	return facts{
		generation:  o.GetGeneration(),
		terminating: o.GetDeletionTimestamp() != nil,
		visible:     digestOf(labels, annotations, o.GetOwnerReferences(), o.GetFinalizers()),
		status:      digestOf(status),
		other:       digestOf(other),
		plainStatus: plainStatus,
	}
}

// managed are the labels and annotations in managed fields. The keys have the
// prefix "f:".
type managed struct {
	Metadata struct {
		Labels      map[string]any `json:"f:labels"`
		Annotations map[string]any `json:"f:annotations"`
	} `json:"f:metadata"`
}

// withoutStatus leaves out the labels and annotations that only status writes
// manage, such as the Deployment controller's revision. The second such write
// within a second does not change the managed fields, so that it would otherwise
// look like a change by another client.
func withoutStatus(labels, annotations map[string]string, status, other []metav1.ManagedFieldsEntry) (l, a map[string]string) {
	ours := managedBy(status)
	if len(ours.Metadata.Labels)+len(ours.Metadata.Annotations) == 0 {
		return without(labels, nil, nil), without(annotations, nil, nil)
	}
	theirs := managedBy(other)
	return without(labels, ours.Metadata.Labels, theirs.Metadata.Labels),
		without(annotations, ours.Metadata.Annotations, theirs.Metadata.Annotations)
}

// managedBy merges the labels and annotations of entries. It ignores fields that
// cannot be read.
func managedBy(entries []metav1.ManagedFieldsEntry) managed {
	var all managed
	for _, entry := range entries {
		if bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:metadata"`)) {
			_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &all) // adds to the maps
		}
	}
	return all
}

// without returns m without the keys that are in ours but not in theirs. It
// returns nil if nothing is left, so that nil and empty maps are the same.
func without(m map[string]string, ours, theirs map[string]any) map[string]string {
	var left map[string]string
	for key, value := range m {
		_, our := ours["f:"+key]
		_, their := theirs["f:"+key]
		if our && !their {
			continue
		}
		if left == nil {
			left = map[string]string{}
		}
		left[key] = value
	}
	return left
}

func digestOf(parts ...any) digest {
	h := sha256.New()
	for _, part := range parts {
		write(h, part)
	}
	var d digest
	copy(d[:], h.Sum(nil))
	return d
}

// write adds a part to a hash as JSON, with sorted keys and a newline at the end.
func write(h hash.Hash, part any) {
	// Maps and slices of plain data can always be encoded, and a hash never fails.
	_ = json.NewEncoder(h).Encode(part)
}

// judge says what happened between two versions of one object.
//
// A status write shows in the managed fields: only entries of the status
// subresource have changed. If a kind has a generation, writes of the spec raise
// it. Without a generation, such writes may not show at all: two writes of one
// manager within a second leave identical managed fields. If a kind has no status
// subresource, writes of the status raise the generation, too.
func judge(was, is facts) verdict {
	viaStatus := was.status != is.status && was.other == is.other
	switch {
	case is.terminating:
		return bookkeeping // the deletion counts when the object is gone
	case was.generation != is.generation && was.visible == is.visible && (was.plainStatus || is.plainStatus):
		return unclear
	case was.generation != is.generation:
		return changed
	case viaStatus:
		return statusWrite
	case was.visible != is.visible:
		return changed
	case is.generation == 0:
		return unclear
	case was.other != is.other:
		return bookkeeping
	default:
		return statusWrite // the second write within a second
	}
}

// part returns which part of an object has changed between two versions; empty if the
// metadata does not tell.
func part(was, is facts) string {
	switch {
	case was.generation != is.generation:
		return "spec"
	case was.visible != is.visible && is.generation != 0:
		return "metadata"
	}
	return ""
}
