package fingerprint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// What has changed is named from what is recorded, without values and without wrong names.
func TestSince_NamesWhatHasChanged(t *testing.T) {
	was := []Part{
		{OfObject, "", "o"}, {OfContent, "roles and playbooks", "1"}, {OfContent, "collections", "1"}, {OfFiles, "/etc/app/*", "1"},
		{OfAnsible, "core 2.16.1", ""}, {OfEnvironment, "A", "1"}, {OfEnvironment, "SECRET", "correct-horse"}, {OfEnvironment, "Z", ""},
	}
	with := func(parts ...Part) []Part {
		is := slices.Clone(was)
		for _, p := range parts {
			at := slices.IndexFunc(is, func(q Part) bool { return q.Group == p.Group && q.Name == p.Name })
			if at < 0 {
				is = append(is, p)
			} else {
				is[at] = p
			}
		}
		return is
	}
	var many []Part
	for i := range maxPacked + 1 {
		many = append(many, Part{OfEnvironment, fmt.Sprintf("V%03d", i), "1"})
	}
	packed := Pack(was)
	tests := map[string]struct {
		packed string
		is     []Part
		want   []string
	}{
		"nothing":                {packed, was, nil},
		"the object":             {packed, with(Part{OfObject, "", "p"}), []string{"object"}},
		"roles":                  {packed, with(Part{OfContent, "roles and playbooks", "2"}), []string{"content: roles and playbooks"}},
		"a secret variable":      {packed, with(Part{OfEnvironment, "SECRET", "battery-staple"}), []string{"environment: SECRET"}},
		"several":                {packed, with(Part{OfEnvironment, "Z", "1"}, Part{OfFiles, "/etc/app/*", "2"}), []string{"files: /etc/app/*", "environment: Z"}},
		"added":                  {packed, with(Part{OfEnvironment, "NEW", "1"}), []string{"environment: NEW"}},
		"removed":                {packed, slices.DeleteFunc(slices.Clone(was), func(p Part) bool { return p.Name == "A" }), []string{"environment"}},
		"the last of its group":  {packed, slices.DeleteFunc(slices.Clone(was), func(p Part) bool { return p.Group == OfFiles }), []string{"files"}},
		"another version":        {packed, append(with()[:4:4], append([]Part{{OfAnsible, "core 2.19.0", ""}}, was[5:]...)...), []string{"ansible: core 2.19.0"}},
		"more than are named":    {packed, with(many[:8]...), []string{"environment: V000, V001, V002, V003, V004, 3 more"}},
		"more than are kept":     {packed, with(many...), []string{"environment"}},
		"more than were kept":    {Pack(with(many...)), with(append(slices.Clone(many), Part{OfEnvironment, "V007", "2"})...), []string{"environment"}},
		"a name of odd letters":  {packed, with(Part{OfEnvironment, "É\n", "1"}), []string{`environment: "\u00c9\n"`}},
		"a long name":            {packed, with(Part{OfEnvironment, strings.Repeat("x", 1000), "1"}), []string{"environment: " + strings.Repeat("x", 117) + "…"}},
		"no record":              {"", with(Part{OfObject, "", "p"}), nil},
		"a record of another's":  {"%%%", with(Part{OfObject, "", "p"}), nil},
		"a record that is short": {packed[:8], with(Part{OfObject, "", "p"}), nil},
	}
	for name, tt := range tests {
		var got []string
		for _, c := range Since(tt.packed, tt.is) {
			got = append(got, c.String())
		}
		must.Be(t, name, tt.want, got)
	}
	for _, parts := range [][]Part{many, many[:maxPacked]} {
		if n := len(Pack(parts)); n > 1000 { // what a status accepts
			t.Errorf("%d parts: %d characters are kept", len(parts), n)
		}
	}
}

// Someone who reads fingerprints, and knows all inputs except one variable, cannot distinguish its value from thousands
// of others. A change of the variable is still seen.
func TestVariable_IsNotToldByFingerprints(t *testing.T) {
	prints, entries := map[string]bool{}, map[string]bool{}
	const values = 4000
	for i := range values {
		parts := []Part{{OfObject, "", "o"}, Variable("PASSWORD", fmt.Sprint(i))}
		prints[Of(parts)], entries[Of(parts)+Pack(parts)] = true, true
	}
	if len(entries) != len(prints) {
		t.Errorf("what is packed tells %d values apart, and fingerprints %d", len(entries), len(prints))
	}
	if n := len(prints); n > 3960 || n < 3700 {
		t.Errorf("fingerprints tell %d of %d values apart; 16 bits tell about 3,880", n, values)
	}
	if Variable("A", "1").Value == Variable("B", "1").Value {
		t.Error("two variables with one value are told to have it")
	}
}
