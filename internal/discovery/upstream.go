package discovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// upstream is the API server.
type upstream struct {
	transport http.RoundTripper
	server    *url.URL
}

// request asks q, and reveals nothing else about the client that asks.
func (u upstream) request(ctx context.Context, q question, etag string) *http.Request {
	target := *u.server
	target.Path = strings.TrimSuffix(u.server.Path, "/") + q.path
	if u.server.RawPath != "" {
		target.RawPath = strings.TrimSuffix(u.server.RawPath, "/") + q.path
	}
	target.RawQuery = q.query
	header := http.Header{}
	if q.accept != "" {
		header.Set("Accept", q.accept)
	}
	header.Set("Accept-Encoding", q.encoding)
	if q.encoding == "" {
		// By default the transport asks for gzip and unpacks it.
		header.Set("Accept-Encoding", "identity")
	}
	if etag != "" {
		header.Set("If-None-Match", etag)
	}
	return (&http.Request{Method: http.MethodGet, URL: &target, Header: header}).WithContext(ctx)
}

// fetch asks the flight's question and returns the API server's answer, or the
// previous document if the API server says that it is still valid.
func (u upstream) fetch(f *flight) *answer {
	etag := ""
	if f.previous != nil {
		etag = f.previous.header.Get("Etag")
	}
	resp, err := u.transport.RoundTrip(u.request(f.ctx, f.question, etag))
	if err != nil {
		return &answer{failure: fmt.Errorf("ask the API server for %s: %w", f.question.path, err)}
	}
	defer resp.Body.Close()
	header := sharedHeader(resp.Header)
	if resp.StatusCode == http.StatusNotModified && f.previous != nil {
		return f.previous.confirmed(f.begun, header)
	}
	if resp.ContentLength > maxDocument {
		return &answer{begun: f.begun, oversize: true}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return &answer{failure: fmt.Errorf("read the API server's answer for %s: %w", f.question.path, err)}
	}
	if len(body) > maxDocument {
		return &answer{begun: f.begun, oversize: true}
	}
	return &answer{
		begun: f.begun, status: resp.StatusCode, header: header, body: body,
		resources: sync.OnceValues(func() (map[string]Resource, error) { return readResources(body) }),
	}
}

// sharedHeader returns the header of an answer without the fields that belong to
// one connection, one request or one client.
func sharedHeader(header http.Header) http.Header {
	shared := header.Clone()
	for _, key := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Audit-Id", "Content-Length", "Date", "Set-Cookie",
	} {
		shared.Del(key)
	}
	return shared
}
