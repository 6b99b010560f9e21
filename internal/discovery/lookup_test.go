package discovery

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/test/must"
)

const widgets = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g.test/v1","resources":[
	{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["create","get"]},
	{"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get"]},
	{"name":"plants","singularName":"plant","namespaced":false,"kind":"Plant","verbs":["list"]}]}`

const nothing = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g.test/v1","resources":[]}`

func widget(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "g.test", Version: "v1", Resource: resource}
}

// only serves one path. All others are broken.
func only(path string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			answer = says(503, "broken")
		}
		answer(w, r)
	}
}

func TestLookup_ReadsTheDocumentOfItsGroupVersionOnly(t *testing.T) {
	cases := map[string]struct {
		gvr  schema.GroupVersionResource
		path string
		want Resource
	}{
		"namespaced":     {widget("widgets"), "/apis/g.test/v1", Resource{Kind: "Widget", Namespaced: true, Verbs: []string{"create", "get"}}},
		"cluster-scoped": {widget("plants"), "/apis/g.test/v1", Resource{Kind: "Plant", Verbs: []string{"list"}}},
		"core": {schema.GroupVersionResource{Version: "v1", Resource: "plants"}, "/api/v1",
			Resource{Kind: "Plant", Verbs: []string{"list"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, only(tc.path, says(200, widgets)))
				tc.want.GVR = tc.gvr
				for range 10 {
					got := must.Get(c.Lookup(t.Context(), tc.gvr))(t)
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Fatalf("(-want +got):\n%s", diff)
					}
				}
				s.wantAsked(t, 1)
			})
		})
	}
}

func TestLookup_NonsenseCostsFewRequests(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{"no group version": says(404, ""), "no resource": says(200, nothing)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, answer)
				const step = time.Millisecond
				for range 3 * missingFor / step {
					if _, err := c.Lookup(t.Context(), widget("widgets")); !errors.Is(err, ErrNotFound) {
						t.Fatalf("the error is %v, want ErrNotFound", err)
					}
					time.Sleep(step)
				}
				s.wantAsked(t, 3)
				s.will(says(200, widgets))
				if _, err := c.Lookup(t.Context(), widget("widgets")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestLookup_AfterInvalidateTheNewIsThereAtOnce(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{"no group version": says(404, ""), "no resource": says(200, nothing)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, answer)
				c.Invalidate()
				time.Sleep(time.Second)
				if _, err := c.Lookup(t.Context(), widget("widgets")); !errors.Is(err, ErrNotFound) {
					t.Fatalf("the error is %v, want ErrNotFound", err)
				}
				s.will(says(200, widgets))
				if _, err := c.Lookup(t.Context(), widget("widgets")); err != nil {
					t.Error(err)
				}
				s.will(says(404, ""))
				if _, err := c.Lookup(t.Context(), widget("widgets")); !errors.Is(err, ErrNotFound) {
					t.Errorf("the error is %v, want ErrNotFound", err)
				}
			})
		})
	}
}

func TestLookup_NamesThatCannotBeAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, widgets))
		for _, gvr := range []schema.GroupVersionResource{
			{},
			{Group: "g.test", Resource: "widgets"},
			{Group: "g.test", Version: "..", Resource: "widgets"},
			{Group: "g.test/v1", Version: "namespaces", Resource: "widgets"},
			{Version: "v1/pods", Resource: "widgets"},
			{Version: "v1?x", Resource: "widgets"},
		} {
			if _, err := c.Lookup(t.Context(), gvr); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v: the error is %v, want ErrNotFound", gvr, err)
			}
		}
		s.wantAsked(t, 0)
	})
}

func TestLookup_NotToBeAskedIsNotAbsent(t *testing.T) {
	for name, failure := range failures() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, says(200, widgets))
				c.upstream.transport = failure
				if _, err := c.Lookup(t.Context(), widget("widgets")); err == nil || errors.Is(err, ErrNotFound) {
					t.Errorf("without a document the error is %v", err)
				}
				c.upstream.transport = s
				must.Get(c.Lookup(t.Context(), widget("widgets")))(t)
				c.upstream.transport = failure
				time.Sleep(freshFor)
				if _, err := c.Lookup(t.Context(), widget("widgets")); err != nil {
					t.Errorf("what is in the older document is not found: %v", err)
				}
				if _, err := c.Lookup(t.Context(), widget("gadgets")); err == nil || errors.Is(err, ErrNotFound) {
					t.Errorf("for what is not in the older document the error is %v", err)
				}
			})
		})
	}
}

func TestLookup_AnswersThatAreNoListAreErrors(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"forbidden": says(403, `{"kind":"Status"}`), "no JSON": says(200, "<html>"), "another kind": says(200, `{"kind":"Status"}`),
		"too large": says(200, strings.Repeat(" ", maxDocument)+nothing),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := scripted(t, answer)
				if _, err := c.Lookup(t.Context(), widget("widgets")); err == nil || errors.Is(err, ErrNotFound) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

func TestLookup_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, gated(nil, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Lookup(ctx, widget("widgets")); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("the error is %v", err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it returned after %v", waited)
		}
	})
}

func TestLookupAnyVersion(t *testing.T) {
	const groups = `{"kind":"APIGroupList","groups":[{"name":"g.test","versions":[
		{"groupVersion":"g.test/v2","version":"v2"},{"groupVersion":"g.test/v1","version":"v1"}]}]}`
	for name, tc := range map[string]struct {
		gvr   schema.GroupVersionResource
		want  string // its version; empty for none
		asked int
	}{
		"its own version":               {widget("plants").GroupResource().WithVersion("v1"), "v1", 2},
		"a version without it":          {widget("plants").GroupResource().WithVersion("v2"), "v1", 3},
		"a version that is not served":  {widget("plants").GroupResource().WithVersion("v1alpha1"), "v1", 3},
		"in no version":                 {widget("stones"), "", 3},
		"a group that does not exist":   {schema.GroupVersionResource{Group: "h.test", Version: "v1", Resource: "plants"}, "", 1},
		"a version that the core lacks": {schema.GroupVersionResource{Version: "v2", Resource: "plants"}, "v1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, func(w http.ResponseWriter, r *http.Request) {
					answers := map[string]string{"/apis": groups, "/apis/g.test/v2": nothing, "/apis/g.test/v1": widgets, "/api/v1": widgets}
					says(http.StatusOK, answers[r.URL.Path])(w, r)
				})
				got, err := c.LookupAnyVersion(t.Context(), tc.gvr)
				if (tc.want == "") != errors.Is(err, ErrNotFound) || got.GVR.Version != tc.want {
					t.Errorf("found %v, %v", got.GVR, err)
				}
				s.wantAsked(t, tc.asked)
			})
		})
	}
}
