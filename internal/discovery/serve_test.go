package discovery

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

func TestHandles_KnowsDocumentsAndLeavesTheRest(t *testing.T) {
	const tag = `"A1"`
	cases := []struct {
		name   string
		method string
		target string
		header http.Header
		body   string
		want   bool
	}{
		{name: "versions of the core group", target: "/api", want: true},
		{name: "resources of the core group", target: "/api/v1", want: true},
		{name: "groups", target: "/apis", want: true},
		{name: "versions of a group", target: "/apis/apps", want: true},
		{name: "resources of a group version", target: "/apis/rbac.authorization.k8s.io/v1", want: true},
		{name: "OpenAPI 2", target: "/openapi/v2", want: true},
		{name: "list of OpenAPI 3 documents", target: "/openapi/v3", want: true},
		{name: "OpenAPI 3 of a group version", target: "/openapi/v3/apis/apps/v1?hash=1", want: true},
		{name: "OpenAPI 3 of what is no group", target: "/openapi/v3/.well-known/openid-configuration", want: true},
		{name: "a query", target: "/apis?timeout=32s", want: true},
		{name: "one tag", target: "/apis", header: http.Header{"If-None-Match": {tag}}, want: true},
		{name: "a date beside a tag", target: "/apis", header: http.Header{"If-None-Match": {tag}, "If-Modified-Since": {"x"}}, want: true},
		{name: "an identity", target: "/apis", header: http.Header{"Authorization": {"x"}, "Impersonate-User": {"x"}}, want: true},

		{name: "objects", target: "/api/v1/pods"},
		{name: "objects of a group", target: "/apis/apps/v1/deployments"},
		{name: "version", target: "/version"},
		{name: "root", target: "/"},
		{name: "OpenAPI without a version", target: "/openapi"},
		{name: "below OpenAPI 2", target: "/openapi/v2/apis"},
		{name: "trailing slash", target: "/apis/"},
		{name: "double slash", target: "/apis//apps"},
		{name: "walks upwards", target: "/openapi/v3/../../api/v1"},
		{name: "escaped slash", target: "/apis/apps%2Fv1"},
		{name: "odd character", target: "/apis/Apps"},
		{name: "HEAD", method: http.MethodHead, target: "/apis"},
		{name: "POST", method: http.MethodPost, target: "/apis"},
		{name: "body", target: "/apis", body: "{}"},
		{name: "several tags", target: "/apis", header: http.Header{"If-None-Match": {`"A", "B"`}}},
		{name: "weak tag", target: "/apis", header: http.Header{"If-None-Match": {`W/"A"`}}},
		{name: "any tag", target: "/apis", header: http.Header{"If-None-Match": {"*"}}},
		{name: "half a tag", target: "/apis", header: http.Header{"If-None-Match": {`"`}}},
		{name: "two headers with a tag", target: "/apis", header: http.Header{"If-None-Match": {tag, tag}}},
		{name: "two Accept headers", target: "/apis", header: http.Header{"Accept": {"application/json", "text/plain"}}},
		{name: "date without a tag", target: "/apis", header: http.Header{"If-Modified-Since": {"x"}}},
		{name: "range", target: "/openapi/v2", header: http.Header{"Range": {"bytes=0-9"}}},
		{name: "nothing from a cache", target: "/apis", header: http.Header{"Cache-Control": {"no-cache"}}},
		{name: "upgrade", target: "/apis", header: http.Header{"Upgrade": {"websocket"}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			r := httptest.NewRequestWithContext(t.Context(), method, tc.target, strings.NewReader(tc.body))
			for key, values := range tc.header {
				r.Header[key] = values
			}
			if got := Handles(r); got != tc.want {
				t.Errorf("Handles is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestServeHTTP_AnswersFromMemoryWhileFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one"))
		want(t, ask(t, c, "/apis"), 200, "one")
		s.will(says(200, "two"))
		time.Sleep(freshFor - 1)
		want(t, ask(t, c, "/apis"), 200, "one")
		s.wantAsked(t, 1)
		time.Sleep(time.Nanosecond)
		want(t, ask(t, c, "/apis"), 200, "two")
		s.wantAsked(t, 1)
	})
}

func TestServeHTTP_AgeCountsFromTheBeginOfTheRequest(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(freshFor)
		says(200, "old")(w, r)
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, slow)
		want(t, ask(t, c, "/apis"), 200, "old")
		s.will(says(200, "new"))
		want(t, ask(t, c, "/apis"), 200, "new")
	})
}

func TestServeHTTP_RevalidatesWithTheETag(t *testing.T) {
	const tag = `"A1"`
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, tagged(tag, "one"))
		want(t, ask(t, c, "/apis"), 200, "one")
		time.Sleep(freshFor)
		s.asked()
		want(t, ask(t, c, "/apis"), 200, "one")
		if got := s.asked(); len(got) != 1 || got[0].Header.Get("If-None-Match") != tag {
			t.Fatalf("the API server was not asked whether %s holds: %v", tag, got)
		}
		want(t, ask(t, c, "/apis"), 200, "one")
		s.wantAsked(t, 0) // fresh again

		s.will(tagged(`"A2"`, "two"))
		time.Sleep(freshFor)
		want(t, ask(t, c, "/apis"), 200, "two")
	})
}

func TestServeHTTP_ConfirmationRenewsTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one", "ETag", `"A"`, "Expires", "soon", "Content-Type", "text/x"))
		ask(t, c, "/apis")
		s.will(says(304, "", "ETag", `"A"`, "Expires", "later"))
		time.Sleep(freshFor)
		got := ask(t, c, "/apis")
		want(t, got, 200, "one")
		if diff := cmp.Diff(http.Header{
			"Etag": {`"A"`}, "Expires": {"later"}, "Content-Type": {"text/x"}, "Content-Length": {"3"},
		}, got.Header()); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
	})
}

func TestServeHTTP_AnswersTheClientsOwnCondition(t *testing.T) {
	document := says(200, "one", "ETag", `"A"`, "Vary", "Accept", "Cache-Control", "public", "Content-Type", "text/x",
		"Content-Encoding", "gzip", "Last-Modified", "long ago", "Warning", `299 - "old"`)
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, document)
		got := ask(t, c, "/apis", "If-None-Match", `"A"`) // the cache is empty
		want(t, got, 304, "")
		if diff := cmp.Diff(http.Header{
			"Etag": {`"A"`}, "Vary": {"Accept"}, "Cache-Control": {"public"}, "Warning": {`299 - "old"`},
		}, got.Header()); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
		want(t, ask(t, c, "/apis", "If-None-Match", `"A"`), 304, "")
		want(t, ask(t, c, "/apis", "If-None-Match", `"B"`), 200, "one")
		want(t, ask(t, c, "/apis"), 200, "one")
		if got := s.asked(); len(got) != 1 || got[0].Header.Get("If-None-Match") != "" {
			t.Errorf("want one request without a condition, got %v", got)
		}
	})
}

func TestServeHTTP_KeepsRepresentationsApart(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		says(200, r.URL.String()+" "+r.Header.Get("Accept")+" "+r.Header.Get("Accept-Encoding"))(w, r)
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, echo)
		const aggregated = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io"
		for range 2 { // the second time from memory
			want(t, ask(t, c, "/apis"), 200, "https://cluster.test/apis  identity")
			want(t, ask(t, c, "/apis?timeout=32s"), 200, "https://cluster.test/apis?timeout=32s  identity")
			want(t, ask(t, c, "/apis", "Accept", aggregated), 200, "https://cluster.test/apis "+aggregated+" identity")
			want(t, ask(t, c, "/apis", "Accept-Encoding", "gzip"), 200, "https://cluster.test/apis  gzip")
			want(t, ask(t, c, "/api"), 200, "https://cluster.test/api  identity")
		}
		s.wantAsked(t, 5)
	})
}

func TestServeHTTP_AsksBelowTheServersPrefix(t *testing.T) {
	for server, want := range map[string]string{
		"https://cluster.test":               "/openapi/v3/apis/apps/v1?hash=1",
		"https://cluster.test/":              "/openapi/v3/apis/apps/v1?hash=1",
		"https://cluster.test/k8s/c-1":       "/k8s/c-1/openapi/v3/apis/apps/v1?hash=1",
		"https://cluster.test/k8s/c-1/":      "/k8s/c-1/openapi/v3/apis/apps/v1?hash=1",
		"https://cluster.test/of%2Fmany/c-1": "/of%2Fmany/c-1/openapi/v3/apis/apps/v1?hash=1",
	} {
		s := &script{answer: says(200, "one")}
		ask(t, newCache(t, s, server), "/openapi/v3/apis/apps/v1?hash=1")
		if got := s.asked()[0].URL.RequestURI(); got != want {
			t.Errorf("below %s it asks for %s, want %s", server, got, want)
		}
	}
}

func TestServeHTTP_NothingOfAClientGoesUpstreamOrToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one", "Set-Cookie", "a=b", "Audit-Id", "1", "Connection", "close", "X-Other", "kept"))
		got := ask(t, c, "/apis", "Authorization", "Bearer secret", "Cookie", "secret",
			"Impersonate-User", "admin", "Impersonate-Group", "system:masters", "X-Remote-User", "admin",
			"User-Agent", "curious", "X-Forwarded-For", "10.0.0.1", "If-None-Match", `"A"`)
		want(t, got, 200, "one")
		must.Be(t, "header of the request", http.Header{"Accept-Encoding": {"identity"}}, s.asked()[0].Header)
		must.Be(t, "header of the answer", http.Header{"X-Other": {"kept"}, "Content-Length": {"3"}}, got.Header())
	})
}

// broken is a body that ends with an error.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
func (broken) Close() error             { return nil }

// transportFunc is a transport that can fail in ways that a script cannot.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// failures are the ways in which an API server can fail to answer.
func failures() map[string]transportFunc {
	answering := func(answer http.HandlerFunc) transportFunc { return (&script{answer: answer}).RoundTrip }
	return map[string]transportFunc{
		"no backend":        answering(says(503, "sorry", "Retry-After", "1")),
		"internal error":    answering(says(500, "sorry")),
		"too many requests": answering(says(429, "sorry")),
		"no answer in time": answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"no connection":     func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"half an answer": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: broken{}, ContentLength: -1}, nil
		},
	}
}

func TestServeHTTP_AnOlderDocumentStandsInForAnAnswer(t *testing.T) {
	for name, failure := range failures() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, says(200, "one", "ETag", `"A"`))
				want(t, ask(t, c, "/apis"), 200, "one")
				c.upstream.transport = failure
				time.Sleep(freshFor)
				want(t, ask(t, c, "/apis"), 200, "one")
				want(t, ask(t, c, "/apis", "If-None-Match", `"A"`), 304, "")
				c.Invalidate()
				want(t, ask(t, c, "/apis"), 200, "one")

				c.upstream.transport = s
				s.will(says(200, "two"))
				want(t, ask(t, c, "/apis"), 200, "two")
			})
		})
	}
}

func TestServeHTTP_NoDocumentStandsInForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one"))
		ask(t, c, "/apis")
		s.will(says(503, "sorry", "Retry-After", "1"))
		for range keepFor / time.Minute {
			want(t, ask(t, c, "/apis"), 200, "one") // use does not make the document younger
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Nanosecond)
		want(t, ask(t, c, "/apis"), 503, "sorry")
	})
}

func TestServeHTTP_WithoutADocumentFailuresPassOn(t *testing.T) {
	statuses := map[string]int{
		"no backend": 503, "internal error": 500, "too many requests": 429,
		"no answer in time": 504, "no connection": 503, "half an answer": 503,
	}
	for name, failure := range failures() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := scripted(t, nil)
				c.upstream.transport = failure
				got := ask(t, c, "/apis")
				if got.Code != statuses[name] {
					t.Errorf("the answer is %d %q, want %d", got.Code, got.Body, statuses[name])
				}
				if name == "no backend" && (got.Body.String() != "sorry" || got.Header().Get("Retry-After") != "1") {
					t.Errorf("the answer is not the API server's: %v %q", got.Header(), got.Body)
				}
			})
		})
	}
}

func TestServeHTTP_OnlyDocumentsAreRemembered(t *testing.T) {
	for _, status := range []int{301, 400, 401, 403, 404, 406, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			c, s := scripted(t, says(status, "no"))
			want(t, ask(t, c, "/apis/new.test"), status, "no")
			s.will(says(200, "there"))
			want(t, ask(t, c, "/apis/new.test"), 200, "there")
		})
	}
}

func TestServeHTTP_ADocumentThatIsGoneDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one", "ETag", `"A"`))
		ask(t, c, "/apis/old.test")
		time.Sleep(freshFor)
		s.will(says(404, "gone"))
		want(t, ask(t, c, "/apis/old.test"), 404, "gone")
		s.will(says(503, "sorry"))
		s.asked()
		want(t, ask(t, c, "/apis/old.test"), 503, "sorry")
		if got := s.asked()[0].Header.Get("If-None-Match"); got != "" {
			t.Errorf("the API server was asked whether %s holds", got)
		}
	})
}

func TestServeHTTP_WhatIsTooLargePassesThrough(t *testing.T) {
	large := strings.Repeat("x", maxDocument+1)
	for _, length := range []string{"told", "not told"} {
		t.Run("length "+length, func(t *testing.T) {
			answer := func(w http.ResponseWriter, r *http.Request) {
				if length == "told" {
					w.Header().Set("Content-Length", "8388609")
				}
				tagged(`"A"`, large)(w, r)
			}
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, answer)
				if got := ask(t, c, "/openapi/v2"); got.Code != 200 || got.Body.String() != large {
					t.Errorf("the answer is %d with %d bytes, want 200 with %d", got.Code, got.Body.Len(), len(large))
				}
				s.wantAsked(t, 2)
				want(t, ask(t, c, "/openapi/v2", "If-None-Match", `"A"`, "Authorization", "secret"), 304, "")
				asked := s.asked()
				if len(asked) != 1 || asked[0].Header.Get("If-None-Match") != `"A"` || asked[0].Header.Get("Authorization") != "" {
					t.Errorf("want one request with the client's condition and without its identity, got %v", asked)
				}
				if c.store.size > 1<<16 {
					t.Errorf("%d bytes are kept", c.store.size)
				}
			})
		})
	}
}

func TestServeHTTP_HalfOfWhatIsTooLargeIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, says(200, strings.Repeat("x", maxDocument+1)))
		ask(t, c, "/openapi/v2")
		c.upstream.transport = failures()["half an answer"]
		defer func() {
			if recover() != http.ErrAbortHandler { //nolint:errorlint // net/http compares it too
				t.Error("the connection is not aborted")
			}
		}()
		ask(t, c, "/openapi/v2")
	})
}
