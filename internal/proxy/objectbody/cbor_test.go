package objectbody

import (
	"bytes"
	"testing"
)

func TestAddToCBOR_ChangesNothingElse(t *testing.T) {
	for name, body := range map[string][]byte{
		"empty":           cbor(t, `{}`),
		"null metadata":   cbor(t, `{"metadata":null}`),
		"null parts":      cbor(t, `{"metadata":{"ownerReferences":null,"annotations":null}}`),
		"references":      cbor(t, expand(`{"metadata":{"name":"c","ownerReferences":[OTHER],"annotations":{"a":"b"}},"x":[1,1.5,9007199254740993,null]}`)),
		"not tagged":      cbor(t, `{"metadata":{"name":"c"}}`)[len(selfDescribed):],
		"text strings":    []byte("\xa1\x68metadata\xa1\x64name\x61c"),
		"indefinite":      []byte("\xbf\x48metadata\xbf\x44name\x41c\xff\xff"),
		"later as base64": []byte("\xd9\xd9\xf7\xa1\x4abinaryData\xa1\x41k\xd6\x42\x00\xff"),
		"tagged metadata": []byte("\xa1\x48metadata\xd9\xd9\xf7\xa1\x44name\x41c"),
		"float":           []byte("\xa1\x41f\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00"),
	} {
		for _, e := range []Encoding{CBOR, ApplyCBOR} {
			for kind, m := range marks() {
				marked, err := e.Add(body, m, nil)
				if err != nil {
					t.Errorf("%s: %s: %v", name, kind, err)
					continue
				}
				if !checkAdded(t, e, body, marked, m, "") {
					t.Errorf("%s: %s: nothing to compare", name, kind)
				}
				if tagged := bytes.HasPrefix(body, []byte(selfDescribed)); tagged != bytes.HasPrefix(marked, []byte(selfDescribed)) {
					t.Errorf("%s: %s: %q became %q", name, kind, body, marked)
				}
			}
		}
	}
}

func TestAddToCBOR_KeepsTheBytesOfOtherValues(t *testing.T) {
	double := []byte("\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00") // there is a shorter way to say one
	marked, err := CBOR.Add(append([]byte("\xa1\x41f"), double...), owner(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(marked, double) {
		t.Errorf("the number was encoded again: %q", marked)
	}
}
