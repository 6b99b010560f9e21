package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
)

// Object is the digest of what is [relevant] of an object.
func Object(object map[string]any, annotations bool) (string, error) {
	h := sha256.New()
	if err := encode(h, relevant(object, annotations)); err != nil {
		return "", fmt.Errorf("fingerprint of the object: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// relevant is the part of object whose change is a reason to run. Objects that
// carry a generation count with everything but metadata and status, and with
// their annotations where these count; others, such as a ConfigMap, with labels
// and annotations too, since nothing else tells their changes apart. The result
// shares memory with object.
func relevant(object map[string]any, annotations bool) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	delete(out, "status")
	// "kind" and "apiVersion" stay: they cost nothing and name the version.
	meta, _ := object["metadata"].(map[string]any)
	_, hasGeneration := meta["generation"]
	kept := map[string]any{"uid": meta["uid"]}
	if annotations || !hasGeneration {
		kept["annotations"] = meta["annotations"]
	}
	if !hasGeneration {
		kept["labels"] = meta["labels"]
	}
	out["metadata"] = kept
	return out
}

// encode writes v as JSON, whose map keys encoding/json sorts.
func encode(h hash.Hash, v any) error {
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
