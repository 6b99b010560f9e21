package dependent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// crowd serves a list of very many objects, one of which is owned, and watches in which nothing happens.
type crowd struct {
	size, owned int
	kind        schema.GroupVersionKind

	mu     sync.Mutex
	limits []string // of the lists
}

func (c *crowd) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	rw.Header().Set("Content-Type", "application/json")
	if query.Get("watch") == "true" {
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush() // the client sees it, or has gone
		<-req.Context().Done()
		return
	}
	c.mu.Lock()
	c.limits = append(c.limits, query.Get("limit"))
	c.mu.Unlock()
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	to := min(from+limit, c.size)
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1000000"},
	}
	if to < c.size {
		list.Continue = strconv.Itoa(to)
	}
	for i := from; i < to; i++ {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "crowd", Name: fmt.Sprintf("object-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), ResourceVersion: strconv.Itoa(i + 1),
		}}
		if i == c.owned {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: c.kind.GroupVersion().String(), Kind: c.kind.Kind, Name: "owner", UID: "owner-uid"}}
		}
		list.Items = append(list.Items, o)
	}
	_ = json.NewEncoder(rw).Encode(list) // the client sees what is missing
}

// This test runs alone, because it counts goroutines.
func TestRegistry_KeepsOnlyWhatIsOwnedAndLeavesNothingRunning(t *testing.T) {
	testenv.Config(t) // everything that it starts is running before the count
	before := goleak.IgnoreCurrent()
	gvk := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Widget"}
	c := &crowd{size: 50_000, owned: 31_234, kind: gvk}
	server := httptest.NewServer(c)
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	client := &http.Client{Transport: &http.Transport{}}
	meta, err := metadata.NewForConfigAndClient(cfg, client)
	if err != nil {
		t.Fatalf("make a client for metadata: %v", err)
	}
	content, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		t.Fatalf("make a client for objects: %v", err)
	}
	r := New(Options{Client: meta, Content: content, Lookup: lookup})
	k := r.Subscribe(OwnerKind{GVK: gvk, Namespaced: true, Changed: func(types.NamespacedName, types.UID, string, bool) {}})
	owner := types.NamespacedName{Namespace: "crowd", Name: "owner"}
	k.Restore(owner, []schema.GroupVersionResource{configMaps})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Start(ctx) }()
	testenv.Eventually(t, "the watch", func(context.Context) error {
		if len(r.Watching()) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	r.mu.Lock()
	f := r.feeds[configMaps.GroupResource()]
	records, version := len(f.records), ""
	for _, rec := range f.records {
		version = rec.version
	}
	r.mu.Unlock()
	if records != 1 || version != strconv.Itoa(c.owned+1) {
		t.Errorf("%d records, the last of version %s; want one of version %d", records, version, c.owned+1)
	}
	must.Be(t, "limits of the lists", slices.Repeat([]string{"500"}, 100), c.limits)
	must.Be(t, "resources owned", []schema.GroupVersionResource{configMaps}, k.Owned(owner))
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Start returned %v", err)
	}
	client.CloseIdleConnections()
	server.Close()
	must.Do(t, leaktest.Goroutines(before))
}
