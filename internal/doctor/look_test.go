package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/internal/limits"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestCheckPlace_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"own": 0o700, "shared": 0o777, "sticky": 0o777 | fs.ModeSticky, "group": 0o770} {
		path := filepath.Join(dir, name)
		must.Do(t, os.Mkdir(path, 0o700))
		must.Do(t, os.Chmod(path, mode))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		place Place
		state State
		found string
	}{
		{Place{Path: in("own")}, OK, in("own")},
		{Place{Path: in("sticky")}, OK, in("sticky")},
		{Place{Path: in("shared")}, Failed, in("shared") + " is world-writable (mode 0777): any user can replace its files"},
		{Place{Path: in("group")}, Note, in("group") + " is group-writable (mode 0770)"},
		{Place{Path: in("own/a/b"), Made: true}, OK, in("own/a/b")},
		{Place{Path: in("shared/a"), Made: true}, Failed, in("shared") + " is world-writable (mode 0777): any user can replace its files"},
		{Place{Path: in("none")}, Failed, "stat " + in("none") + ": no such file or directory"},
		{Place{Path: in("none"), Optional: true}, Note, "stat " + in("none") + ": no such file or directory"},
		{Place{Path: in("shared"), Alone: true}, OK, in("shared")},
		{Place{Path: in("group"), Alone: true}, OK, in("group")},
		{Place{Path: "/proc", ReadOnly: true}, OK, "/proc cannot be written, and need not be"},
		{Place{Path: in("none"), Optional: true, ReadOnly: true}, Note, "stat " + in("none") + ": no such file or directory"},
		{Place{Path: in("file")}, Failed, in("file") + " is not a directory"},
		{Place{Path: ""}, Failed, "it is not set"},
	} {
		tt.place.Remedy = "R"
		got := CheckPlace(tt.place)
		if got.State != tt.state || got.Found != tt.found || (got.Remedy == "R") != (tt.state != OK) {
			t.Errorf("%+v: %+v", tt.place, got)
		}
	}
	left, err := os.ReadDir(in("own"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

func TestCheckAccounts_FindsAListThatOthersCanWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "passwd")
	if got := CheckAccounts(path); got.State != OK {
		t.Errorf("of none: %+v", got)
	}
	must.Do(t, os.WriteFile(path, nil, 0o600))
	if got := CheckAccounts(path); got.State != OK {
		t.Errorf("of one's own: %+v", got)
	}
	must.Do(t, os.Chmod(path, 0o664))
	if got := CheckAccounts(path); got.State != Failed || !strings.Contains(got.Found, "CVE-2025-7195") {
		t.Errorf("of the group's: %+v", got)
	}
}

func TestCheckLimits_ComparesThemWithTheRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limits limits.Limits
		runs   int
		want   []State // memory, processes, CPUs
	}{
		{limits.Limits{}, 100, []State{OK, OK, OK}},
		{limits.Limits{Memory: 768 << 20, Processes: 512, CPUs: 4}, 4, []State{OK, OK, OK}},
		{limits.Limits{Memory: 768 << 20, Processes: 64, CPUs: 1}, 8, []State{Note, Note, Note}},
		{limits.Limits{Memory: 128 << 20, Processes: 20, CPUs: 1}, 1, []State{Failed, Failed, OK}},
		{limits.Limits{Memory: 424 << 20, Processes: 0, CPUs: 0}, 2, []State{OK, OK, OK}}, // 60 + 120 + 2 × (115 + 7)
		{limits.Limits{Memory: 423 << 20, Processes: 0, CPUs: 0}, 2, []State{Note, OK, OK}},
		{limits.Limits{Memory: 768 << 20, Whole: true}, 1, []State{OK, OK, OK}},
	} {
		var got []State
		for _, f := range CheckLimits(tt.limits, tt.runs) {
			got = append(got, f.State)
			if whole := strings.Contains(f.Found, "kills the whole container"); whole != (tt.limits.Whole && f.Check == "memory") {
				t.Errorf("%+v: %q", tt.limits, f.Found)
			}
			if (f.State != OK) != (f.Remedy != "") {
				t.Errorf("%+v: remedy %q", f, f.Remedy)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v, %d runs (-want +got)\n%s", tt.limits, tt.runs, diff)
		}
	}
}

// The figures of checkLimits are those of the documentation.
func TestCheckLimits_HasTheFiguresOfTheDocumentation(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/operations.md"))(t)
	for _, row := range []string{
		fmt.Sprintf("| the operator, 1,000 idle objects | %d MiB |", operatorMiB),
		fmt.Sprintf("| the fork server | %d MiB |", serverMiB),
		fmt.Sprintf("with `--executor=runner` | 95 MiB; %d MiB with ansible-core 2.19 |", runMiB-supervisorMiB),
		fmt.Sprintf("| the supervisor of a run | %d MiB |", supervisorMiB),
	} {
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md has no %q", row)
		}
	}
}

// Kinds without a spec, such as ConfigMap, have their fields beside the metadata.
func TestKind_FieldsOutsideOfTheSpec(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]int{"data": 0, "status": 1} {
		s := Schema{Properties: map[string]Schema{"apiVersion": {}, "kind": {}, "metadata": {}, field: {}}}
		if got := (Kind{}).judge(Finding{}, s); len(got) != want {
			t.Errorf("%s: %v", field, got)
		}
	}
}

func TestCheckKind_ReadsTheSchema(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	yes := true
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	keeping := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	named := object(map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}})
	replaced := func(declared []string) []string {
		if len(declared) == 0 {
			return nil
		}
		return []string{"result", "other than " + strings.Join(declared, " ")}
	}
	for name, tt := range map[string]struct {
		schema *apiextensionsv1.JSONSchemaProps
		want   []string // part of each finding after the first
	}{
		"all is kept":      {nil, nil},
		"named and kept":   {ptr(object(map[string]apiextensionsv1.JSONSchemaProps{"spec": named, "status": keeping})), nil},
		"status is strict": {ptr(object(map[string]apiextensionsv1.JSONSchemaProps{"spec": keeping, "status": named})), []string{"drops status.ansible"}},
		"only ansible is kept": {ptr(object(map[string]apiextensionsv1.JSONSchemaProps{
			"spec": named, "status": object(map[string]apiextensionsv1.JSONSchemaProps{"ansible": keeping}),
		})), nil},
		"an empty spec": {ptr(object(map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object"}, "status": keeping})), []string{"declares no field of the spec"}},
		"any field is kept": {ptr(object(map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: named.Properties, XPreserveUnknownFields: &yes}, "status": keeping,
		})), []string{"an object can set result, other than size"}},
		"nothing": {ptr(object(nil)), []string{"declares no field of the spec", "drops status.ansible"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts []testenv.CRDOption
			if tt.schema != nil {
				opts = append(opts, testenv.WithSchema(*tt.schema))
			}
			gvk := testenv.CRD(t, cfg, opts...)
			var got []Finding
			testenv.Eventually(t, "the schema published", func(ctx context.Context) error {
				got = CheckKind(ctx, client, Kind{gvk, true, replaced})
				for _, f := range got {
					if f.State == LeftOut {
						return errors.New(f.Found)
					}
				}
				return nil
			})
			if got[0].State != OK || len(got) != len(tt.want)+1 {
				t.Fatalf("%+v", got)
			}
			for i, want := range tt.want {
				if f := got[i+1]; !strings.Contains(f.Found, want) || f.Remedy == "" {
					t.Errorf("%+v, want %s", f, want)
				}
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }
