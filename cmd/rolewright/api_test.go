package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// After SIGTERM, the API still answers readers until the last runs have ended.
func TestServeAPI_KnowsTheKindsAfterSIGTERM(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for suffix, answer := range map[string]string{
			"/g.example.com/v1":     `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g.example.com/v1","resources":[{"name":"jars","kind":"Jar","namespaced":true}]}`,
			"/tokenreviews":         `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"reader"}}}`,
			"/subjectaccessreviews": `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`,
		} {
			if strings.HasSuffix(r.URL.Path, suffix) {
				_, _ = fmt.Fprint(w, answer)
			}
		}
	}))
	t.Cleanup(cluster.Close)
	_, port, err := net.SplitHostPort(testenv.Address(t))
	must.Do(t, err)
	op := &operator{runOptions: &runOptions{}, Parts: &assembly.Parts{History: history.NewRecorder(nil, nil)}}
	op.answered.Store(&[]watches.Watch{
		{GVK: schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"}},
	})
	op.apiPort, op.cluster.config = must.Get(strconv.Atoi(port))(t), &rest.Config{Host: cluster.URL}
	ctx, stop := context.WithCancel(t.Context())
	serve := must.Get(op.serveAPI(ctx, discovery.New(http.DefaultTransport, must.Get(url.Parse(cluster.URL))(t), logr.Discard()), new(controller.Set)))(t)
	stop()
	serving, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(serving) }()
	t.Cleanup(func() {
		end()
		must.Do(t, <-ended)
	})
	status, body, err := fetch(t.Context(), "http://127.0.0.1:"+port+api.Root+"/runs?kind=Jar", "token")
	if err != nil || status != http.StatusOK {
		t.Errorf("the answer is %d, %v: %s", status, err, body)
	}
}
