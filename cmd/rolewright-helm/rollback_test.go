package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hook is a ConfigMap that is a hook. The cluster serves nothing to wait for it with: it is never ready.
func hook(name, event string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: ns, annotations: {helm.sh/hook: " + event + "}}\n"
}

// An upgrade whose hooks take longer than the run is rolled back before the run is stopped, though each may take as long.
func TestUpgrade_SlowHook(t *testing.T) {
	c := newCluster(t)
	c.release(chartOfTwo)
	c.write(filepath.Join(c.chart, "templates", "a.yaml"), strings.Replace(chartOfTwo, "---", "data: {a: b}\n---", 1)+hook("before", "pre-upgrade"))
	h, file := c.handler("reconcile")
	h.deadline = time.Now().Add(5 * time.Second)
	ctx, stop := context.WithDeadline(t.Context(), h.deadline)
	defer stop()
	_, err := h.act(ctx)
	text, readErr := os.ReadFile(file)
	c.try(readErr)
	if err == nil || !strings.Contains(err.Error(), "revision 1 was restored") || !strings.Contains(string(text), "ReleaseRolledBack") {
		t.Errorf("%v\n%s", err, text)
	}
}
