package assembly

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Fence returns a config for clients whose writes fail unless the operator leads at that
// moment. held returns nil while it leads, else the error. Access and token reviews always pass,
// since they write nothing, whatever their verb.
func Fence(config *rest.Config, held func() error) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next, held} })
	return config
}

type fenced struct {
	next http.RoundTripper
	held func() error
}

// RoundTrip implements [http.RoundTripper].
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	review := strings.HasPrefix(req.URL.Path, "/apis/authorization.k8s.io/") || strings.HasPrefix(req.URL.Path, "/apis/authentication.k8s.io/")
	if reads || review {
		return f.next.RoundTrip(req)
	}
	if err := f.held(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // required by http.RoundTripper
		}
		return nil, err
	}
	return f.next.RoundTrip(req)
}
