package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/client-go/rest"
)

// What the proxy keeps of a request, such as the name of an object, does not keep the whole URL in memory.
func TestOpen_NamesAreNoPartsOfTheURL(t *testing.T) {
	t.Parallel()
	p := startProxy(t, &rest.Config{Host: "http://127.0.0.1:1"})
	a, _, _ := admit(t, p, Grant{RunID: "it"})
	url := p.URL() + "/apis/example.com/v1/namespaces/ns/things/name/status?" + strings.Repeat("q", 200<<10)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	r.Header.Set("Authorization", "Bearer "+a.token)
	x, refused := p.open(r)
	if refused != nil {
		t.Fatal(refused)
	}
	within := func(part, whole string) bool {
		is, begin := uintptr(unsafe.Pointer(unsafe.StringData(part))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
		return is >= begin && is < begin+uintptr(len(whole))
	}
	for _, part := range []string{x.info.Path, x.info.APIGroup, x.info.APIVersion, x.info.Resource, x.info.Subresource, x.info.Namespace, x.info.Name} {
		if part == "" || within(part, r.URL.Path) {
			t.Errorf("%q is a part of the URL", part)
		}
	}
}
