package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/test/must"
)

// A run cannot make the operator watch any number of kinds. A message says once that some are not watched.
func TestWitness_KindsAreBounded(t *testing.T) {
	t.Parallel()
	var lines []string
	w := &runTracker{log: funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})}
	named := func(n int) proxy.Child {
		return proxy.Child{Resource: schema.GroupVersionResource{Group: fmt.Sprintf("g%d.x", n), Version: "v1", Resource: "things"}}
	}
	for n := range maxKinds {
		w.Expect(named(n))
	}
	must.Be(t, "too many", false, w.more)
	for n := range 2 * maxKinds {
		w.Expect(named(n))
		w.Found(named(n))
	}
	if len(w.known) != maxKinds || !w.more || len(lines) != 1 || !strings.Contains(lines[0], "are not watched") {
		t.Errorf("%d kinds are known, more: %v; the log:\n%s", len(w.known), w.more, strings.Join(lines, "\n"))
	}
}
