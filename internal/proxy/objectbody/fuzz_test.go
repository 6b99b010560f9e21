package objectbody

import "testing"

// FuzzAddToObject: whatever the body is, Add returns; and if it adds the mark, the
// API server reads the same object with the mark in it, once.
func FuzzAddToObject(f *testing.F) {
	encodings := []Encoding{JSON, YAML, ApplyYAML, CBOR, ApplyCBOR, Protobuf}
	for _, body := range []string{
		`{"a":1,"metadata":{"ownerReferences":[` + otherText + `],"annotations":{"a":null}},"metadata":null}`,
		"metadata: &m\n  name: 0x1f\n  <<: {annotations: ~}\ndata: {on: *m, 1.5: [yes, 1e3, 2001-01-01]}\n---\n}", `{"k":"\ud83d\u0000"}`,
	} {
		for i := range encodings {
			f.Add(uint8(i), []byte(body))
		}
	}
	for _, object := range objects() {
		f.Add(uint8(5), encode(f, Protobuf, object))
		f.Add(uint8(3), cbor(f, string(encode(f, JSON, object))))
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		e := encodings[int(which)%len(encodings)]
		for _, m := range marks() {
			marked, err := e.Add(body, m, nil)
			if err == nil {
				checkAdded(t, e, body, marked, m, "")
			}
		}
		_, _ = e.Read(body)
		_, _ = e.Names(body)
	})
}

// FuzzAddToPatch: the same for patches, compared by the patched object.
func FuzzAddToPatch(f *testing.F) {
	encodings, names := []Encoding{MergePatch, JSONPatch}, []string{"plain", "owned", "ours", "annotated"}
	for i := range names {
		f.Add(uint8(0), uint8(i), []byte(expand(`{"metadata":{"ownerReferences":[OTHER],"annotations":{"a":null}},"data":null}`)))
		f.Add(uint8(1), uint8(i), []byte(expand(`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}},{"op":"remove","path":"/metadata/annotations/a"},{"op":"replace","path":"/metadata/ownerReferences","value":[OTHER]},{"op":"move","from":"/data/k","path":"/data/l"},{"op":"copy","from":"/data","path":"/d"},{"op":"test","path":"","value":{}}]`)))
	}
	f.Fuzz(func(t *testing.T, which, of uint8, body []byte) {
		e, stored := encodings[int(which)%len(encodings)], stores()[names[int(of)%len(names)]]
		for _, m := range marks() {
			marked, err := e.Add(body, m, storedMeta(t, stored))
			if err == nil && applies(e, body, stored) {
				checkAdded(t, e, body, marked, m, stored)
			}
		}
		_, _ = e.Read(body)
	})
}

// applies is false if the library of API servers panics; API servers survive that.
func applies(e Encoding, body []byte, stored string) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	_, err := untyped(e, body, stored)
	return err == nil
}
