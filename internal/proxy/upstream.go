package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	stdlog "log" //nolint:depguard // net/http wants one; what it gets is the operator's logger

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/proxy/objectbody"
)

// connect makes the transports to the API server.
func (p *Proxy) connect(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.UserAgent = ""            // each client sends its own; the API server names the field manager after it
	config.DisableCompression = true // nothing is unpacked for a client that did not ask for compression
	if config.Dial == nil {
		// Without Dial and TLS settings, client-go uses net/http's shared
		// transport, which ignores the settings above.
		config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	var err error
	if p.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	if p.direct, err = rest.TransportFor(config); err != nil {
		return fmt.Errorf("transport to the API server: %w", err)
	}
	config.NextProtos = []string{"http/1.1"}
	if p.upgrades, err = rest.TransportFor(config); err != nil {
		return fmt.Errorf("transport to the API server for upgrades: %w", err)
	}
	return nil
}

// dialTimeout is the timeout that client-go uses.
const dialTimeout = 30 * time.Second

// errorLog returns a logger for net/http's messages about broken connections.
func (p *Proxy) errorLog() *stdlog.Logger {
	return slog.NewLogLogger(logr.ToSlogHandler(p.log.V(1)), slog.LevelInfo)
}

// forward sends the request on and its answer back.
func (x *exchange) forward(w http.ResponseWriter, r *http.Request) {
	transport := x.p.direct
	if isUpgrade(r.Header) {
		transport = x.p.upgrades
	}
	rp := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged, even if it is invalid: the API server decides
			pr.SetURL(x.p.base)
			stripIdentity(pr.Out.Header)
			pr.Out.Trailer = nil // it may contain the client's identity, too
			if x.readsAnswer() {
				pr.Out.Header.Del("Accept-Encoding")
			}
		},
		Transport:      transport,
		FlushInterval:  -1, // pass on watch events and log lines at once
		BufferPool:     x.p.buffers,
		ErrorLog:       x.p.errorLog(),
		ModifyResponse: x.observe,
		ErrorHandler:   x.unanswered,
	}
	defer func() {
		if x.tunnel != nil {
			_ = x.tunnel.Close() // ReverseProxy does not wait for its end, but the end of a run has to
		}
	}()
	if x.write {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			// To connect takes time, and so does another attempt. Once there is an answer, this is about the patch of a mark.
			if err := x.fence(); err != nil && x.code == 0 {
				cancel(err)
			}
		}}))
	}
	rp.ServeHTTP(heldWriter{w, x}, r)
}

// isUpgrade reports whether a request asks for another protocol.
func isUpgrade(h http.Header) bool {
	return h.Get("Upgrade") != "" && strings.Contains(strings.ToLower(strings.Join(h.Values("Connection"), ",")), "upgrade")
}

// unanswered is called if the API server does not answer, or its answer cannot be
// passed on.
func (x *exchange) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	x.failure = err
	x.expectAbsent()
	if refused, ok := errors.AsType[*refusal](context.Cause(r.Context())); ok { // by the fence
		err, x.failure = refused, refused
	} else if r.Context().Err() != nil || x.s.ctx.Err() != nil {
		panic(http.ErrAbortHandler) // a return would answer 200 to a client that is still there
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		x.cut(refused)
		refused.write(w)
		return
	}
	refuse(http.StatusBadGateway, "", "the API server cannot be reached: "+err.Error()).write(w)
}

// partialMetadata is an Accept header that asks for an object's metadata only, and
// accepts the whole object from a server that does not support that.
const partialMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// errUnreadable is the error for an object that can never be read.
var errUnreadable = errors.New("the API server does not let the operator read it")

// stored reads the metadata of the object that a request is about; it returns nil if
// the object does not exist.
func (p *Proxy) stored(ctx context.Context, info *request.RequestInfo) (*objectbody.Meta, error) {
	path := strings.TrimSuffix(info.Path, "/")
	status, body, err := p.call(ctx, http.MethodGet, path, nil, http.Header{"Accept": {partialMetadata}})
	if err != nil {
		return nil, err
	}
	switch status {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	case http.StatusForbidden, http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("read the metadata of %s: %w", path, errUnreadable)
	default:
		return nil, fmt.Errorf("read the metadata of %s: the API server answers %d", path, status)
	}
	meta, err := objectbody.Read(body)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of %s: %w", path, err)
	}
	return &meta, nil
}

// If the API server answers that it is too busy, the proxy repeats the request, as clients do: it makes
// busyTries attempts, with the pauses that the answers ask for, but at most busyPause.
const (
	busyTries = 5
	busyPause = 5 * time.Second
)

// call sends a request that the proxy itself makes.
func (p *Proxy) call(ctx context.Context, method, path string, body []byte, header http.Header) (int, []byte, error) {
	for n := 1; ; n++ {
		code, answer, pause, err := p.callOnce(ctx, method, path, body, header)
		deadline, limited := ctx.Deadline()
		if err != nil || code != http.StatusTooManyRequests || n == busyTries || limited && time.Until(deadline) < pause {
			return code, answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%s %s: %w", method, path, context.Cause(ctx))
		}
	}
}

// callOnce returns the answer, and how long to wait before the request is sent again.
func (p *Proxy) callOnce(ctx context.Context, method, path string, body []byte, header http.Header) (int, []byte, time.Duration, error) {
	target := p.base.JoinPath()
	target.Path = strings.TrimSuffix(p.base.Path, "/") + path
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header = header
	resp, err := p.direct.RoundTrip(req)
	if err != nil {
		return 0, nil, 0, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return 0, nil, 0, fmt.Errorf("read the answer of %s %s: %w", method, path, err)
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		seconds = 1
	}
	return resp.StatusCode, data, min(max(time.Duration(seconds)*time.Second, 0), busyPause), nil
}
