package dependent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/test/testenv"
)

// Someone who may write statuses can name any number of resources for any number of owners. Each resource is requested
// once, one after the other; one that is not found, twice. It then leaves nothing behind. One that cannot be requested stays
// recorded.
func TestRestore_AsksForEachResourceOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var now atomic.Int64
	asked, most := map[string]int{}, int64(0)
	down := schema.GroupVersionResource{Group: "down", Version: "v1", Resource: "things"}
	r := New(Options{Lookup: func(_ context.Context, gvr schema.GroupVersionResource) (discovery.Resource, error) {
		n := now.Add(1)
		defer now.Add(-1)
		mu.Lock()
		asked[gvr.Group]++
		most = max(most, n)
		mu.Unlock()
		if gvr == down {
			return discovery.Resource{}, errors.New("no answer")
		}
		return discovery.Resource{}, fmt.Errorf("look up: %w", discovery.ErrNotFound)
	}})
	k := r.Subscribe(OwnerKind{Namespaced: true})
	const owners, names = 50, 100
	want := map[string]int{}
	for o := range owners {
		resources := []schema.GroupVersionResource{down}
		for n := range names {
			group := fmt.Sprintf("g%d", n)
			resources = append(resources, schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"})
			want[group] = 2
		}
		k.Restore(types.NamespacedName{Name: fmt.Sprint(o)}, resources)
	}
	first, second := types.NamespacedName{Name: "0"}, types.NamespacedName{Name: "1"}
	if got := k.Owned(first); len(got) != names+1 {
		t.Errorf("%d resources are taken for owned before they are looked up", len(got))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Start(ctx) }()
	testenv.Eventually(t, "what does not exist is forgotten", func(context.Context) error {
		if got := k.Owned(first); len(got) != 1 || got[0] != down {
			return fmt.Errorf("%d owned", len(got))
		}
		return nil
	})
	k.Forget(first)
	if got := k.Owned(first); len(got) > 0 {
		t.Errorf("owned by an owner that is gone: %v", got)
	}
	if got := k.Owned(second); len(got) != 1 {
		t.Errorf("owned by another: %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	delete(asked, down.Group)
	if diff := cmp.Diff(want, asked); diff != "" || most != 1 || len(r.feeds) > 0 {
		t.Errorf("%d look-ups at once, %d watches; asked (-want +got):\n%s", most, len(r.feeds), diff)
	}
}
