package runstore

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/rolewright/rolewright/runner/plainfile"
)

// specFile is the file of an object's directory with the spec of its last successful run.
// It goes with the last of the object's runs.
const specFile = "spec.json"

// keptSpec is the content of spec.json.
type keptSpec struct {
	UID string
	// AsOf is the last run that was on record when the file was written, the successful one
	// or one after it. Where another process, on another disk, has made runs since,
	// another one is on record.
	AsOf string
	Spec json.RawMessage
}

// KeepSpec keeps the spec of an object, with which run has succeeded. One that has more than
// [noteLimit] bytes is not kept.
func (s *Store) KeepSpec(uid, run string, spec json.RawMessage) error {
	data, err := json.Marshal(keptSpec{UID: uid, AsOf: run, Spec: spec})
	if err != nil {
		return fmt.Errorf("encode the spec of a run: %w", err)
	}
	if len(data) > noteLimit {
		return nil
	}
	if err := plainfile.Replace(filepath.Join(s.Object(uid), specFile), data); err != nil {
		return fmt.Errorf("keep the spec of a run: %w", err)
	}
	return nil
}

// Spec is the spec of the last successful run of an object of which last is the last run;
// nil if it is not known for sure.
func (s *Store) Spec(uid, last string) json.RawMessage {
	data, err := plainfile.Read(filepath.Join(s.Object(uid), specFile), noteLimit)
	if err != nil {
		return nil
	}
	var kept keptSpec
	if json.Unmarshal(data, &kept) != nil || kept.UID != uid || kept.AsOf != last || last == "" {
		return nil
	}
	return kept.Spec
}

// CarrySpec keeps what [Store.Spec] is for last, now that run follows it and leaves the
// last success what it was.
func (s *Store) CarrySpec(uid, last, run string) error {
	spec := s.Spec(uid, last)
	if spec == nil {
		return nil
	}
	return s.KeepSpec(uid, run, spec)
}
