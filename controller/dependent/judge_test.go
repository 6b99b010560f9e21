package dependent

import (
	"encoding/json"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/test/must"
)

var verdicts = map[string]verdict{"bookkeeping": bookkeeping, "status": statusWrite, "changed": changed, "unclear": unclear}

// The metadata was captured with kubectl from an API server while the Deployment controller, the scheduler and a
// simulated kubelet were at work.
func TestJudge_TellsCapturedWritesApart(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/captured.json")
	if err != nil {
		t.Fatalf("read what was captured: %v", err)
	}
	var tests []struct {
		Name, Want string
		Was, Is    metav1.ObjectMeta
	}
	if err := json.Unmarshal(data, &tests); err != nil {
		t.Fatalf("decode what was captured: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.Name, func(t *testing.T) {
			t.Parallel()
			want, ok := verdicts[tt.Want]
			if !ok {
				t.Fatalf("there is no verdict %q", tt.Want)
			}
			if got := judge(factsOf(&tt.Was), factsOf(&tt.Is)); got != want {
				t.Errorf("judge returned %d, want %d", got, want)
			}
		})
	}
}

func TestJudge_FollowsItsRules(t *testing.T) {
	t.Parallel()
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	role := entry("role", "", `{"f:metadata":{"f:annotations":{"f:mine":{}}},"f:spec":{}}`)
	status := entry("controller", "status", `{"f:metadata":{"f:annotations":{"f:its":{}}},"f:status":{}}`)
	object := func(generation int64, annotations map[string]string, entries ...metav1.ManagedFieldsEntry) metav1.ObjectMeta {
		return metav1.ObjectMeta{Generation: generation, Annotations: annotations, ManagedFields: entries}
	}
	tests := []struct {
		name    string
		was, is metav1.ObjectMeta
		want    verdict
	}{
		{
			name: "only managed fields, with a generation", want: bookkeeping,
			was: object(1, nil, role), is: object(1, nil, entry("other", "", `{}`), role),
		},
		{
			name: "only managed fields, without a generation", want: unclear,
			was: object(0, nil, role), is: object(0, nil, entry("other", "", `{}`), role),
		},
		{
			name: "an annotation of the status, whose managed fields stay", want: statusWrite,
			was: object(1, map[string]string{"its": "1"}, role, status), is: object(1, map[string]string{"its": "2"}, role, status),
		},
		{
			name: "an annotation of a role, whose managed fields stay", want: changed,
			was: object(1, map[string]string{"mine": "1"}, role, status), is: object(1, map[string]string{"mine": "2"}, role, status),
		},
		{
			name: "an annotation of the status that another client takes over", want: changed,
			was: object(1, map[string]string{"its": "1"}, role, status),
			is: object(1, map[string]string{"its": "2"}, entry("kubectl", "", `{"f:metadata":{"f:annotations":{"f:its":{}}}}`), role,
				entry("controller", "status", `{"f:status":{}}`)),
		},
		{
			name: "an annotation that the status takes from a role", want: changed,
			was: object(1, map[string]string{"mine": "1"}, role),
			is:  object(1, map[string]string{"mine": "2"}, entry("controller", "status", `{"f:metadata":{"f:annotations":{"f:mine":{}}}}`)),
		},
		{
			name: "no map and an empty one", want: statusWrite,
			was: object(1, nil, role), is: object(1, map[string]string{}, role),
		},
		{name: "nothing managed", want: unclear, was: object(0, nil), is: object(0, nil)},
		{
			name: "the status, or the specification, of a kind without its subresource", want: unclear,
			was: object(1, nil, role), is: object(2, nil, role, entry("controller", "", `{"f:status":{}}`)),
		},
		{
			name: "the status and an annotation of a kind without its subresource", want: changed,
			was: object(1, nil, role), is: object(2, map[string]string{"mine": "1"}, role, entry("controller", "", `{"f:status":{}}`)),
		},
		{name: "a generation that goes back", want: changed, was: object(2, nil), is: object(1, nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := judge(factsOf(&tt.was), factsOf(&tt.is)); got != tt.want {
				t.Errorf("judge returned %d, want %d", got, tt.want)
			}
		})
	}
}

func TestPart_IsWhatTheMetadataTells(t *testing.T) {
	t.Parallel()
	labelled := digestOf(map[string]string{"a": "b"})
	for _, tt := range []struct {
		was, is facts
		want    string
	}{
		{facts{generation: 1}, facts{generation: 2, visible: labelled}, "spec"},
		{facts{generation: 1}, facts{generation: 1, visible: labelled}, "metadata"},
		{facts{}, facts{visible: labelled}, ""}, // its data may have changed too
	} {
		if got := part(tt.was, tt.is); got != tt.want {
			t.Errorf("%+v and %+v: %q, want %q", tt.was, tt.is, got, tt.want)
		}
	}
}

func TestJudgeContent_LooksPastMetadata(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, was, is string
		want          verdict
	}{
		{name: "metadata", was: `{"metadata":{"resourceVersion":"1"},"data":{}}`, is: `{"metadata":{"resourceVersion":"2"},"data":{}}`, want: bookkeeping},
		{name: "status", was: `{"status":{"a":1}}`, is: `{"status":{"a":2}}`, want: statusWrite},
		{name: "data", was: `{"data":{"a":"1"},"status":{"a":1}}`, is: `{"data":{"a":"2"},"status":{"a":2}}`, want: changed},
		{name: "data that comes", was: `{}`, is: `{"data":{"a":"2"}}`, want: changed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var was, is unstructured.Unstructured
			for text, o := range map[string]*unstructured.Unstructured{tt.was: &was, tt.is: &is} {
				if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
					t.Fatalf("decode %s: %v", text, err)
				}
			}
			must.Be(t, "verdict", tt.want, judgeContent(&was, &is))
		})
	}
}
