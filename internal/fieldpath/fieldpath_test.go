package fieldpath

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Changed names the paths of a spec that differ, and never their values.
func TestChanged(t *testing.T) {
	const most = 20
	type m = map[string]any
	many, none := m{}, m{}
	for n := range most + 3 {
		many[fmt.Sprintf("k%02d", n)] = true
	}
	for _, tt := range []struct {
		name          string
		before, after any
		want          []string
		more          int
	}{
		{"nothing", m{"a": m{"b": int64(1)}}, m{"a": m{"b": int64(1)}}, nil, 0},
		{"values, in order", m{"size": int64(1), "image": m{"tag": "1", "name": "n"}}, m{"size": int64(2), "image": m{"tag": "2", "name": "n"}},
			[]string{"spec.image.tag", "spec.size"}, 0},
		{"new and gone", m{"old": m{"a": "x"}}, m{"new": nil}, []string{"spec.new", "spec.old"}, 0},
		{"another type", m{"a": m{"b": "x"}}, m{"a": []any{"x"}}, []string{"spec.a"}, 0},
		{"lists", m{"a": []any{m{"b": "x"}, "y"}, "c": []any{"x"}}, m{"a": []any{m{"b": "z"}, "y"}, "c": []any{"x", "y"}},
			[]string{"spec.a[0].b", "spec.c"}, 0},
		{"odd keys", m{"l": m{"a.b/c": "x", "": "x", "é\n": "x"}}, m{"l": m{"a.b/c": "y", "": "y", "é\n": "y"}},
			[]string{`spec.l[""]`, `spec.l["a.b/c"]`, `spec.l["\u00e9\n"]`}, 0},
		{"no map", "x", "y", []string{"spec"}, 0},
		{"spec gone", m{"a": "x"}, nil, []string{"spec"}, 0},
		{"many", none, many, nil, 3},
	} {
		got, more := Changed("spec", tt.before, tt.after, most)
		if tt.name == "many" && len(got) == most {
			got = nil
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || more != tt.more {
			t.Errorf("%s: %d more, want %d (-want +got):\n%s", tt.name, more, tt.more, diff)
		}
	}
}
