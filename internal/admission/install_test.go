package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// The operator may write to the objects of its own kinds, by name. With cert-manager it may write nothing.
func TestInstall_PermissionsAreForTheOwnKinds(t *testing.T) {
	t.Parallel()
	w := converting()
	w.Webhooks.Validate = []watches.Validation{{Call: watches.Call{Command: &watches.Command{Path: "/bin/true"}}}}
	namer := func(gvk schema.GroupVersionKind) (string, error) { return strings.ToLower(gvk.Kind) + "s", nil }
	read := func(certManager bool) map[string]string {
		text := must.Get(Install{Name: "op", Namespace: "ns", CertManager: certManager}.YAML([]watches.Watch{w}, namer))(t)
		found := map[string]string{}
		for part := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
				Rules    any
			}
			must.Do(t, yaml.Unmarshal([]byte(part), &o))
			found[o.Kind] = o.Metadata.Namespace + "/" + o.Metadata.Name
			if o.Rules != nil {
				found[o.Kind] += " " + string(must.Get(yaml.Marshal(o.Rules))(t))
			}
		}
		return found
	}
	must.Be(t, "with cert-manager", map[string]string{"Service": "ns/op-webhook", "Issuer": "ns/op-webhook", "Certificate": "ns/op-webhook"}, read(true))
	own := read(false)
	role := own["ClusterRole"]
	if len(own) != 5 || strings.Count(role, "resourceNames:\n  - jars.g.example.com\n") != 2 || strings.Count(role, "verbs:\n  - get\n  - patch\n") != 2 || strings.Count(role, "verbs") != 2 {
		t.Errorf("manifests: %v", own)
	}
	if secrets := own["Role"]; !strings.Contains(secrets, "resourceNames:\n  - op-webhook-cert\n  resources:\n  - secrets\n  verbs:\n  - get\n  - update\n") {
		t.Errorf("permissions for Secrets: %s", secrets)
	}
}

// In projects of operator-sdk, the Pods do not have the name of the operator.
func TestInstall_ServiceSelectsThePodsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pods           map[string]string
		selector, note string
	}{
		{map[string]string{"app.kubernetes.io/name": "op", "control-plane": "controller-manager"}, "app.kubernetes.io/name: op", ""},
		{map[string]string{"control-plane": "controller-manager"}, "control-plane: controller-manager", "those of other operators"},
		{map[string]string{"app": "op"}, "app.kubernetes.io/name: op", "selects no Pod of the Deployment"},
		{map[string]string{"app.kubernetes.io/name": "other", "control-plane": "controller-manager"}, "app.kubernetes.io/name: op", "selects no Pod of the Deployment"},
	} {
		i := Install{Name: "op", Namespace: "ns"}
		note := i.Select(tt.pods)
		text := must.Get(i.YAML(nil, nil))(t)
		if !strings.Contains(string(text), "\n  selector:\n    "+tt.selector+"\n  ports:") || !strings.Contains(note, tt.note) || (note == "") != (tt.note == "") {
			t.Errorf("%v: note %q\n%s", tt.pods, note, text)
		}
	}
}

func TestParseReach(t *testing.T) {
	t.Parallel()
	for text, host := range map[string]string{
		"ns/hook": "hook.ns.svc", "https://127.0.0.1:9443": "127.0.0.1", "https://op.example.com": "op.example.com",
		"hook": "", "ns/": "", "/hook": "", "a/b/c": "", "http://a": "", "https://a/b": "", "https://u@a": "", "https://a?b": "", "NS/hook": "",
	} {
		r, err := ParseReach(text)
		if (err == nil) != (host != "") || err == nil && r.Host() != host {
			t.Errorf("%q: %v, %v; want %q", text, r, err, host)
		}
	}
}
