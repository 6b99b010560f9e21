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

// Counts says which further parts of an object are inputs.
type Counts struct {
	// Annotations is true if annotations also count for objects with a generation.
	Annotations bool
	// Requests are annotations that never count: they ask for something, but do not describe the wanted state.
	Requests []string
	// Status is true if the status of objects without a generation counts, because another program writes it.
	Status bool
}

// Object returns the digest of the [relevant] part of an object.
func Object(object map[string]any, counts Counts) (string, error) {
	h := sha256.New()
	if err := encode(h, relevant(object, counts)); err != nil {
		return "", fmt.Errorf("fingerprint of the object: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// relevant returns the part of object whose change is a reason to run. Of an object
// with a generation, that is everything except metadata and status, and its annotations
// if they count. Of other objects, such as a ConfigMap, it is also the labels and
// annotations, and the status if that counts, since nothing else distinguishes their
// changes. The result shares memory with object.
func relevant(object map[string]any, counts Counts) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	// "kind" and "apiVersion" stay, since they name the version.
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

// without returns the annotations without names; nil if none are left.
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

// encode writes v as JSON with sorted map keys.
func encode(h hash.Hash, v any) error {
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
