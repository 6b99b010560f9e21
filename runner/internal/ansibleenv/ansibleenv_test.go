package ansibleenv

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestInherited(t *testing.T) {
	got := Inherited([]string{
		"PATH=/bin",
		"ANSIBLE_GATHERING=explicit",
		"ROLEWRIGHT_RUN=other",
		"ROLEWRIGHT_TOKEN=secret",
		"LEADER_ELECTION_NAMESPACE=ns",
		"WATCH_NAMESPACE=ns",
		"malformed",
		"=hidden",
		"EMPTY=",
		"EQUAL=a=b",
		"PATH=/usr/bin:/bin",
	})
	want := []string{
		"ANSIBLE_GATHERING=explicit",
		"LEADER_ELECTION_NAMESPACE=ns",
		"WATCH_NAMESPACE=ns",
		"EMPTY=",
		"EQUAL=a=b",
		"PATH=/usr/bin:/bin",
	}
	must.Be(t, "environment", want, got)
}

// Root can write everywhere, so a file that is in the way stands for a home directory in which nothing can be written.
func TestWithHome_GivesAPlaceToWhatIsWrittenHome(t *testing.T) {
	open, closed, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(closed, ".ansible"), nil, 0o600))
	for _, tc := range []struct {
		name          string
		environ, want []string
	}{
		{"no home", []string{"A=1"}, []string{"A=1", "HOME=" + elsewhere}},
		{"a home that is not there", []string{"HOME=/nowhere/at/all"}, []string{"HOME=" + elsewhere}},
		{"a home to write to", []string{"HOME=" + open}, []string{"HOME=" + open}},
		{"a home to read", []string{"HOME=" + closed}, []string{"HOME=" + closed, "ANSIBLE_LOCAL_TEMP=" + elsewhere,
			"ANSIBLE_REMOTE_TEMP=" + elsewhere, "ANSIBLE_ASYNC_DIR=" + elsewhere}},
		{"places that were given", []string{"HOME=" + closed, "ANSIBLE_LOCAL_TEMP=/l", "ANSIBLE_REMOTE_TMP=/r", "ANSIBLE_ASYNC_DIR=/a"},
			[]string{"HOME=" + closed, "ANSIBLE_LOCAL_TEMP=/l", "ANSIBLE_REMOTE_TMP=/r", "ANSIBLE_ASYNC_DIR=/a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := WithHome(tc.environ, elsewhere); !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}
