package runstore

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/rolewright/rolewright/runner/plainfile"
)

// specFile is the file in an object's directory with the spec of its last successful run.
// It is removed together with the last of the object's runs.
const specFile = "spec.json"

// keptSpec is the content of spec.json.
type keptSpec struct {
	UID string
	// AsOf is the ID of the run that was the object's last when the file was written: the
	// successful one or a later one. If another process with another disk has executed runs
	// since, the status records another last run, and the file does not count.
	AsOf string
	Spec json.RawMessage
}

// KeepSpec stores the spec of an object with which run has succeeded or, with what
// [Store.Spec] returned before, for a later run that was not a success. It stores neither nil nor a
// spec of more than [noteLimit] bytes.
func (s *Store) KeepSpec(uid, run string, spec json.RawMessage) error {
	data, err := json.Marshal(keptSpec{UID: uid, AsOf: run, Spec: spec})
	if err != nil {
		return fmt.Errorf("encode the spec of a run: %w", err)
	}
	if spec == nil || len(data) > noteLimit {
		return nil
	}
	if err := plainfile.Replace(filepath.Join(s.Object(uid), specFile), data); err != nil {
		return fmt.Errorf("keep the spec of a run: %w", err)
	}
	return nil
}

// Spec returns the spec of an object's last successful run. last is the ID of the object's last
// run. It is nil if the spec is not known for sure.
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
