package localcluster

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A variable that is meant for the tests of an operator makes no command work on the current cluster.
func TestStart_NoExistingCluster(t *testing.T) {
	var requests atomic.Int32
	current := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer current.Close()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "config")
	must.Do(t, os.WriteFile(kubeconfig, []byte("clusters: [{name: c, cluster: {server: "+current.URL+"}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	for _, program := range []string{"etcd", apiServer} {
		must.Do(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	}
	t.Setenv("USE_EXISTING_CLUSTER", "true")
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	if c, err := Start(Options{Dir: dir}); err == nil {
		t.Errorf("started with programs that fail: %+v", c)
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests to the current cluster", n)
	}
}
