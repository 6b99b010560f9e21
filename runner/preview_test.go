package runner

import (
	"slices"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// OLM sets only NO_PROXY. Python and curl read no_proxy first, other clients NO_PROXY.
func TestRuns_KeepWhatNeedsNoProxy(t *testing.T) {
	t.Parallel()
	const loopback = ",127.0.0.1,localhost"
	for name, tt := range map[string]struct{ environ, want []string }{
		"in capitals":      {[]string{"HTTPS_PROXY=http://p", "NO_PROXY=.svc"}, []string{"NO_PROXY=.svc" + loopback, "no_proxy=.svc" + loopback}},
		"in small letters": {[]string{"https_proxy=http://p", "no_proxy=.svc"}, []string{"NO_PROXY=.svc" + loopback, "no_proxy=.svc" + loopback}},
		"both":             {[]string{"ALL_PROXY=http://p", "NO_PROXY=a", "no_proxy=b"}, []string{"NO_PROXY=a" + loopback, "no_proxy=b" + loopback}},
		"of all":           {[]string{"HTTPS_PROXY=http://p", "NO_PROXY=*"}, []string{"no_proxy=*"}},
		"neither":          {[]string{"HTTP_PROXY=http://p"}, []string{"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}},
		"no web proxy":     {[]string{"HTTP_PROXY=", "NO_PROXY=.svc"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, content := range []Content{{Playbook: "/p.yml"}, {Command: &Command{Path: "/bin/true", Dir: "/"}}} {
				p := must.Get(NewPreview(Request{ID: "11111111-1111-4111-8111-111111111111", Content: content}, tt.environ))(t)
				for _, entry := range tt.want {
					if !slices.Contains(p.Environment, entry) {
						t.Errorf("%+v: %q is not in %q", content, entry, p.Environment)
					}
				}
				if added := "no_proxy=127.0.0.1,localhost"; tt.want == nil && slices.Contains(p.Environment, added) {
					t.Errorf("%+v: %q is in %q", content, added, p.Environment)
				}
			}
		})
	}
}
