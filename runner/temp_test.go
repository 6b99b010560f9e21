package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// transients returns the names of the temporary files that are left in a directory.
func transients(t *testing.T, temp *Temp) []string {
	t.Helper()
	entries, err := os.ReadDir(temp.dir.Name())
	if err != nil {
		t.Error(err)
	}
	var left []string
	for _, entry := range entries {
		if transient.MatchString(entry.Name()) {
			left = append(left, entry.Name())
		}
	}
	return left
}

func newTemp(t *testing.T) *Temp {
	t.Helper()
	temp := must.Get(NewTemp(t.TempDir()))(t)
	t.Cleanup(temp.Close)
	return temp
}

func TestTemp_KeepsWhatALivingRunMayHaveMade(t *testing.T) {
	t.Parallel()
	temp := newTemp(t)
	made := func(names ...string) {
		t.Helper()
		for _, name := range names {
			must.Do(t, os.MkdirAll(filepath.Join(temp.dir.Name(), name, "x"), 0o700))
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		entries := must.Get(os.ReadDir(temp.dir.Name()))(t)
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	const kept, one, two, three, four = "k8srcp-0123456789.json", "ansible_ansible.legacy.command_payload_0z_9abcd", "tmp0z_9abcd.pem", "pymp-0z_9abcd", "tmp.0zAb9cDe1F"
	_, first := temp.begin()
	made(kept, one)
	_, second := temp.begin()
	made(two)
	second()
	expect("the first run may have made all", kept, one, two)
	_, third := temp.begin()
	made(three)
	first()
	expect("the third run may have made what was not seen before it began", kept, three)
	_, fourth := temp.begin()
	third()
	expect("the fourth began when this was there", kept)
	made(four)
	fourth()
	expect("all runs have ended", kept)
}

func TestTemp_IsMadeAgainIfItIsRemoved(t *testing.T) {
	t.Parallel()
	temp := newTemp(t)
	must.Do(t, os.Remove(temp.dir.Name()))
	must.Do(t, temp.ensure())
	if info, err := os.Stat(temp.dir.Name()); err != nil || info.Mode() != os.ModeDir|dirMode {
		t.Errorf("%v, %v", info, err)
	}
}

// Modules unpack their arguments into temporary files. A process that is killed has no time to remove them.
func TestRun_AKilledModuleLeavesNoTemporaryFiles(t *testing.T) {
	t.Parallel()
	r := ansible(t)
	req := request(t, "daemons.yml")
	req.ExtraVars = []byte(`{"wait": true}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var there []string
	_, err := during(ctx, t, r, req, []string{"sleep 602"}, func() {
		there = transients(t, r.opts.Temp)
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	if !slices.ContainsFunc(there, func(name string) bool { return strings.HasPrefix(name, "ansible_") }) {
		t.Errorf("a module has its files elsewhere: %q", there)
	}
	if left := transients(t, r.opts.Temp); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
