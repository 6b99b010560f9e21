package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// end is a way to the API server with a client of its own. It speaks HTTP/1.1,
// like the API proxy and Ansible's modules.
type end struct {
	name, server string
	client       *http.Client
}

// connections is how many connections an end keeps: there are never more clients at once.
const connections = 32

// newEnd returns the way that config describes. If fresh is true, it makes a new connection
// for each request.
func newEnd(name string, config *rest.Config, fresh bool) (*end, error) {
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("read how to trust the server: %w", err)
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{
		TLSClientConfig: security, DisableKeepAlives: fresh, DisableCompression: true, MaxIdleConnsPerHost: connections,
	})
	if err != nil {
		return nil, fmt.Errorf("read who the client is: %w", err)
	}
	return &end{name: name, server: config.Host, client: &http.Client{Transport: transport}}, nil
}

// bothEnds returns the direct way, and the way through the API proxy.
func (b *bench) bothEnds(proxied *rest.Config) (direct, through *end, err error) {
	if direct, err = newEnd("direct", b.config, false); err != nil {
		return nil, nil, err
	}
	through, err = newEnd("proxied", proxied, false)
	return direct, through, err
}

// createConfigMap creates a ConfigMap of usual size.
func (e *end) createConfigMap(ctx context.Context, namespace, name string, i int) error {
	_, err := e.do(ctx, call{http.MethodPost, configMaps(namespace), "application/json", configMap(name, i)})
	return err
}

// plain returns config without TLS, which the API proxy accepts on the same port.
func plain(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = strings.Replace(c.Host, "https://", "http://", 1)
	c.TLSClientConfig = rest.TLSClientConfig{}
	return c
}

// call is a request to the API server.
type call struct {
	method, path, contentType string
	body                      []byte
}

// open makes a request. It fails if the answer is not a success.
func (e *end) open(ctx context.Context, c call) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, c.method, e.server+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	if c.contentType != "" {
		req.Header.Set("Content-Type", c.contentType)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("%s: %s %s: %s: %s", e.name, c.method, c.path, resp.Status, text)
	}
	return resp.Body, nil
}

// do makes a request and reads its answer to the end. It returns how long that
// took, in milliseconds.
func (e *end) do(ctx context.Context, c call) (float64, error) {
	began := time.Now()
	body, err := e.open(ctx, c)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return 0, fmt.Errorf("%s: read the answer: %w", e.name, err)
	}
	return ms(time.Since(began)), nil
}

// listed says how many requests a list took, and how many bytes.
type listed struct{ requests, bytes int64 }

// list lists all objects of a collection, by pages of limit objects; 0 means all
// at once. It keeps none of them.
func (e *end) list(ctx context.Context, path string, limit int) (listed, error) {
	var l listed
	for next := ""; ; {
		query := url.Values{}
		if limit > 0 {
			query.Set("limit", fmt.Sprint(limit))
		}
		if next != "" {
			query.Set("continue", next)
		}
		body, err := e.open(ctx, call{method: http.MethodGet, path: path + "?" + query.Encode()})
		if err != nil {
			return l, err
		}
		counted := &counter{Reader: body}
		next, err = continuation(counted)
		_ = body.Close()
		if err != nil {
			return l, fmt.Errorf("%s: read a page: %w", e.name, err)
		}
		l.requests++
		l.bytes += counted.n
		if next == "" {
			return l, nil
		}
	}
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// continuation reads a list to its end and returns the token of the next page.
// It parses only the part before the items.
func continuation(list io.Reader) (string, error) {
	var metadata struct{ Continue string }
	decoder := json.NewDecoder(list)
	for key := json.Token(nil); key != "metadata"; {
		var err error
		if key, err = decoder.Token(); err != nil {
			return "", err
		}
	}
	if err := decoder.Decode(&metadata); err != nil {
		return "", err
	}
	_, err := io.Copy(io.Discard, list)
	return metadata.Continue, err
}
