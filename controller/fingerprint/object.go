package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// Counts says what of an object counts beside its content.
type Counts struct {
	// Annotations is true where they count for objects with a generation, too.
	Annotations bool
	// Requests are annotations that never count: they ask for something, and say nothing of what the object should be.
	Requests []string
	// Status is true where that of objects without a generation counts: another program writes it.
	Status bool
}

// Object is the digest of what is [relevant] of an object.
func Object(object map[string]any, counts Counts) (string, error) {
	h := sha256.New()
	if err := encode(h, relevant(object, counts)); err != nil {
		return "", fmt.Errorf("fingerprint of the object: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// relevant is the part of object whose change is a reason to run. Objects that
// carry a generation count with everything but metadata and status, and with
// their annotations where these count; others, such as a ConfigMap, with labels
// and annotations too, and with their status where that counts, since nothing
// else tells their changes apart. The result shares memory with object.
func relevant(object map[string]any, counts Counts) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	// "kind" and "apiVersion" stay: they cost nothing and name the version.
	meta, _ := object["metadata"].(map[string]any)
	_, hasGeneration := meta["generation"]
	if hasGeneration || !counts.Status {
		delete(out, "status")
	}
	kept := map[string]any{"uid": meta["uid"]}
	if counts.Annotations || !hasGeneration {
		kept["annotations"] = without(meta["annotations"], counts.Requests)
	}
	if !hasGeneration {
		kept["labels"] = meta["labels"]
	}
	out["metadata"] = kept
	return out
}

// without are the annotations but those of the names. None left is the same as no annotations.
func without(annotations any, names []string) any {
	all, _ := annotations.(map[string]any)
	if !slices.ContainsFunc(names, func(name string) bool { return all[name] != nil }) {
		return annotations
	}
	kept := maps.Clone(all)
	for _, name := range names {
		delete(kept, name)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// encode writes v as JSON, whose map keys encoding/json sorts.
func encode(h hash.Hash, v any) error {
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
