package proxy

import (
	"encoding/json"
	"sync"

	"github.com/rolewright/rolewright/internal/fieldpath"
)

// versions has the newest version of each object that a run has seen, by its path. From
// these the proxy finds out which fields a write has changed.
type versions struct {
	mu    sync.Mutex
	seen  map[string][]byte
	bytes int
}

// maxVersions bounds the bytes that are kept for one run. When they exceed it, all are dropped.
const maxVersions = 2 << 20

// swap keeps a version, and returns the version before it; nil if there is none.
func (v *versions) swap(path string, body []byte) (before []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.seen[path]
	v.bytes += len(body) - len(before)
	if v.seen == nil || v.bytes > maxVersions {
		v.seen, v.bytes = map[string][]byte{}, len(body)
	}
	v.seen[path] = body
	return before
}

// see keeps the version of an object that the run has read.
func (x *exchange) see() {
	if x.s.Written != nil && x.info.Verb == "get" && x.info.Subresource == "" && x.answer != nil && !x.answer.overflown {
		x.s.versions.swap(x.info.Path, x.answer.kept.Bytes())
	}
}

// maxFields is how many fields of a write are named at most.
const maxFields = 20

// fields returns the fields that the write has changed. It returns nil unless the version
// before the write is known, which is the case if the run has seen it.
func (x *exchange) fields(name string) []string {
	if x.answer == nil || x.answer.overflown || x.info.Subresource != "" || x.dryRun {
		return nil
	}
	body := x.answer.kept.Bytes()
	before := x.s.versions.swap(x.pathOf(name), body)
	if x.version == "" || before == nil || x.info.Verb == "create" {
		return nil
	}
	var was, is map[string]any
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(body, &is) != nil {
		return nil
	}
	if version, _ := metadataOf(was)["resourceVersion"].(string); version != x.version || was["kind"] != is["kind"] {
		return nil // another client has changed the object since the run has seen it, or the run read it as a table
	}
	for _, object := range []map[string]any{was, is} {
		metadata := metadataOf(object)
		for _, own := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(metadata, own)
		}
	}
	fields, _ := fieldpath.Changed("", was, is, maxFields)
	return fields
}

func metadataOf(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata
}
