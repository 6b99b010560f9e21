package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
)

// Inputs are what a run depends on, the object aside.
type Inputs struct {
	// Content is the digest of the role or playbook and all that it uses.
	Content string
	// Settings is anything else that changes a run: vars, switches, arguments.
	// It must marshal to JSON.
	Settings any
	// Annotations makes the object's annotations part of the fingerprint.
	Annotations bool
}

// Of is the fingerprint of a run of object with in. Objects that carry a
// generation count with everything but metadata and status; others, such as a
// ConfigMap, with their labels and annotations too, since nothing else tells
// their changes apart.
func Of(object map[string]any, in Inputs) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "1 %s\n", in.Content)
	if err := encode(h, in.Settings); err != nil {
		return "", fmt.Errorf("fingerprint of the settings: %w", err)
	}
	if err := encode(h, Relevant(object, in.Annotations)); err != nil {
		return "", fmt.Errorf("fingerprint of the object: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Relevant is the part of object whose change is a reason to run. The result
// shares memory with object.
func Relevant(object map[string]any, annotations bool) map[string]any {
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
