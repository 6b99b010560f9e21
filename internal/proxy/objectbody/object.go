package objectbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"
)

// object is the text of a JSON object and where its members are in it.
type object struct {
	text    []byte
	members []member
}

// member is a member of an object. Its value is text[start:end] of the object.
type member struct {
	name       string
	start, end int
}

// checkJSON fails unless the body is one JSON value with nothing after it. The
// standard library bounds how deep it is nested.
func checkJSON(body []byte) error {
	var v json.RawMessage
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// parseObject splits valid JSON text one level deep.
func parseObject(text []byte) (object, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' {
		return object{}, errors.New("not a JSON object")
	}
	o := object{text: text}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return object{}, fmt.Errorf("not a JSON object: %w", err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return object{}, fmt.Errorf("not a JSON object: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return object{}, fmt.Errorf("not a JSON object: %w", err)
		}
		end := int(d.InputOffset())
		key, _ := name.(string) // the decoder allows nothing else
		o.members = append(o.members, member{key, end - len(value), end})
	}
	return o, nil
}

// get returns the value that an API server uses: the last one. It is nil if there
// is none.
func (o object) get(name string) []byte {
	for _, m := range slices.Backward(o.members) {
		if m.name == name {
			return o.text[m.start:m.end]
		}
	}
	return nil
}

// decode reads a member the way an API server does. A member that is missing or
// null leaves the value as it is.
func (o object) decode(name string, into any) error {
	value := o.get(name)
	if value == nil {
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// with returns the text of the object with the member's last value replaced, or
// with the member added.
func (o object) with(name string, value []byte) []byte {
	for _, m := range slices.Backward(o.members) {
		if m.name == name {
			return slices.Concat(o.text[:m.start], value, o.text[m.end:])
		}
	}
	return insert(o.text, slices.Concat(quote(name), []byte(":"), value), len(o.members) == 0)
}

// insert puts an element at the end of the text of an object or array.
func insert(text, element []byte, isEmpty bool) []byte {
	inside, bracket := text[:len(text)-1], text[len(text)-1:]
	if isEmpty {
		return slices.Concat(inside, element, bracket)
	}
	return slices.Concat(inside, []byte(","), element, bracket)
}

// quote returns the JSON text of a string, which is YAML too.
func quote(s string) []byte {
	text, _ := json.Marshal(s) // fails for no string
	return text
}

func isNull(value []byte) bool { return string(value) == "null" }

func (o object) meta() (Meta, error) {
	var apiVersion, kind string
	var md metadata
	err := errors.Join(o.decode("apiVersion", &apiVersion), o.decode("kind", &kind), o.decode("metadata", &md))
	if err != nil {
		return Meta{}, err
	}
	return md.meta(apiVersion, kind), nil
}

// metadata returns the object's metadata, where field is to be changed.
//
// If the metadata is given twice, the last one counts for custom resources, but for
// built-in kinds each is decoded on top of the one before. The last one is the right
// place for both, unless the field is in another.
func (o object) metadata(field string) (object, error) {
	last, given := object{text: []byte("{}")}, 0
	for _, m := range o.members {
		value := o.text[m.start:m.end]
		if m.name != "metadata" {
			continue
		}
		last = object{text: []byte("{}")}
		if isNull(value) {
			continue
		}
		var err error
		if last, err = parseObject(value); err != nil {
			return object{}, fmt.Errorf("metadata: %w", err)
		}
		for _, m := range last.members {
			if m.name == field {
				given++
			}
		}
	}
	if given > 1 || given == 1 && last.get(field) == nil {
		return object{}, fmt.Errorf("%w: metadata.%s is in one of several places", ErrUnmarkable, field)
	}
	return last, nil
}
