package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Handles reports whether a [Cache] answers r as the API server would. The path
// is the API server's, without a prefix under which it may be served. It returns
// false for an unusual request, which the API server must answer.
func Handles(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ContentLength == 0 &&
		r.URL.RawPath == "" && isDocument(r.URL.Path) && hasPlainHeader(r.Header)
}

// isDocument reports whether a path is that of a document. The names in such paths
// are never escaped and never lead upwards.
func isDocument(path string) bool {
	rest, rooted := strings.CutPrefix(path, "/")
	segments := strings.Split(rest, "/")
	for _, segment := range segments {
		if !isName(segment) {
			return false
		}
	}
	switch segments[0] {
	case "api": // its versions, or a version's resources
		return rooted && len(segments) <= 2
	case "apis": // the groups, a group's versions, or a version's resources
		return rooted && len(segments) <= 3
	case "openapi": // one document of everything, or one per group version and a list of those
		return rooted && len(segments) >= 2 && (segments[1] == "v2" && len(segments) == 2 || segments[1] == "v3")
	}
	return false
}

// isName is true for a text that can be a group, a version or a segment of an
// OpenAPI path.
func isName(segment string) bool {
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' }
	return strings.Trim(segment, ".") != "" && !strings.ContainsFunc(segment, odd)
}

// hasPlainHeader is true if a question can hold all that the header says about
// the representation.
func hasPlainHeader(header http.Header) bool {
	for _, key := range []string{"Accept", "Accept-Encoding", "If-None-Match"} {
		if len(header.Values(key)) > 1 {
			return false
		}
	}
	for _, key := range []string{
		"Cache-Control", "If-Match", "If-Range", "If-Unmodified-Since", "Pragma", "Range", "Upgrade",
	} {
		if len(header.Values(key)) > 0 {
			return false
		}
	}
	tag := header.Get("If-None-Match")
	if tag == "" {
		return len(header.Values("If-Modified-Since")) == 0 // with a tag it has no effect
	}
	// One strong tag means the same everywhere. Lists, weak tags and * are honoured
	// by some handlers of the API server and ignored by others.
	return len(tag) >= 2 && tag[0] == '"' && strings.IndexByte(tag[1:], '"') == len(tag)-2
}

// ServeHTTP answers a request for which [Handles] is true. The client's identity
// is neither checked nor passed on.
func (c *Cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := question{
		path: r.URL.Path, query: r.URL.RawQuery,
		accept: r.Header.Get("Accept"), encoding: r.Header.Get("Accept-Encoding"),
	}
	a := c.get(r.Context(), q, c.termsNow(freshFor, 0))
	tag := r.Header.Get("If-None-Match")
	switch {
	case a.oversize:
		c.pass(w, r, q)
	case a.status == 0:
		refuse(w, a.failure)
	case a.status == http.StatusOK && tag != "" && tag == a.header.Get("Etag"):
		header := w.Header()
		maps.Copy(header, a.header)
		for _, key := range []string{"Accept-Ranges", "Content-Encoding", "Content-Type", "Last-Modified"} {
			header.Del(key) // they describe a body
		}
		w.WriteHeader(http.StatusNotModified)
	default:
		maps.Copy(w.Header(), a.header)
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // the client has gone
	}
}

// pass streams the API server's answer to one client.
func (c *Cache) pass(w http.ResponseWriter, r *http.Request, q question) {
	resp, err := c.upstream.transport.RoundTrip(c.upstream.request(r.Context(), q, r.Header.Get("If-None-Match")))
	if err != nil {
		refuse(w, err)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), sharedHeader(resp.Header))
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // else the client would take a part for the whole
	}
}

// refuse tells the client in the API server's format that there is no answer.
func refuse(w http.ResponseWriter, reason error) {
	status := apierrors.NewServiceUnavailable(reason.Error()).Status()
	if errors.Is(reason, context.DeadlineExceeded) {
		status = apierrors.NewTimeoutError(reason.Error(), 0).Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, reason.Error(), int(status.Code))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // the client has gone
}
