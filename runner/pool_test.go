package runner

import (
	"os"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

func TestPool_ChecksItsServers(t *testing.T) {
	parts.Ansible(t)
	t.Parallel()
	o := Options{Environ: append(os.Environ(), "HOME="+t.TempDir()), ForkTimeout: patient}
	o.Warm = NewPool(o, nil)
	t.Cleanup(o.Warm.Close)
	must.Do(t, o.Warm.Wait(t.Context()))
	r := New(o)
	t.Cleanup(r.Close)
	res, err := r.Run(t.Context(), request(t, "success.yml"))
	if err != nil || res.Executor() != ExecutorWarm || res.Unsuited() != "" {
		t.Errorf("error %v, executor %s (%s)", err, res.Executor(), res.Unsuited())
	}
}
