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
	// bookkeeping is an update that no one acts on.
	bookkeeping verdict = iota
	// statusWrite is an update of the status, with whatever metadata came along.
	statusWrite
	// changed is an update that the owner may want to undo.
	changed
	// unclear is an update that only the content tells.
	unclear
)

// digest stands for a part of an object's metadata. Half a SHA-256 is small,
// and no two parts share it.
type digest [16]byte

// facts is what one version of an object's metadata says to judge.
type facts struct {
	generation  int64
	terminating bool
	// visible is of what people see and set: labels, annotations, owner
	// references and finalizers, without what status writes have set.
	visible digest
	// status and other are of the managed fields: the entries of the status
	// subresource, and those of all other writes.
	status, other digest
	// plainStatus is true if other writes have a say in the status, as where a kind has no
	// status subresource: then the generation counts writes of the status, too.
	plainStatus bool
}

// factsOf is a pure function of the object.
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

// managed are the labels and annotations in the fields of a manager; the keys
// have the prefix "f:".
type managed struct {
	Metadata struct {
		Labels      map[string]any `json:"f:labels"`
		Annotations map[string]any `json:"f:annotations"`
	} `json:"f:metadata"`
}

// withoutStatus leaves out the labels and annotations that status writes have
// set and no one else has a say in. The Deployment controller's revision is the
// best known. Its second write within a second changes no managed fields, so
// that by them alone it would look like anybody's change.
func withoutStatus(labels, annotations map[string]string, status, other []metav1.ManagedFieldsEntry) (l, a map[string]string) {
	ours := managedBy(status)
	if len(ours.Metadata.Labels)+len(ours.Metadata.Annotations) == 0 {
		return without(labels, nil, nil), without(annotations, nil, nil)
	}
	theirs := managedBy(other)
	return without(labels, ours.Metadata.Labels, theirs.Metadata.Labels),
		without(annotations, ours.Metadata.Annotations, theirs.Metadata.Annotations)
}

// managedBy joins the labels and annotations of entries. Fields that cannot be
// read are no one's.
func managedBy(entries []metav1.ManagedFieldsEntry) managed {
	var all managed
	for _, entry := range entries {
		if bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:metadata"`)) {
			_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &all) // maps are added to
		}
	}
	return all
}

// without drops the keys that are ours alone. It returns nil if nothing is
// left: no map and an empty one are the same.
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

// write adds a part in JSON, which sorts the keys of maps and marks the end.
func write(h hash.Hash, part any) {
	// Maps and slices of plain data have an encoding, and a hash never fails.
	_ = json.NewEncoder(h).Encode(part)
}

// judge says what happened between two versions of one object.
//
// A status write shows in the managed fields: entries of the status subresource
// have changed and no others. A kind with a generation counts the writes of its
// specification there. A kind without hides them: two writes of one manager
// within a second leave managed fields that are the same to the letter. A kind
// without a status subresource counts the writes of its status, too.
func judge(was, is facts) verdict {
	viaStatus := was.status != is.status && was.other == is.other
	switch {
	case is.terminating:
		return bookkeeping // the deletion itself counts, once it is done
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
		return statusWrite // the second one within a second
	}
}

// part is the part of an object that has changed between two versions; empty if the
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
