package chartdir

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// archive writes entries, which are pairs of name and text. A text that begins with -> makes a link.
func archive(t *testing.T, entries ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chart.tgz")
	f := must.Get(os.Create(file))(t)
	zipped := gzip.NewWriter(f)
	out := tar.NewWriter(zipped)
	for i := 0; i < len(entries); i += 2 {
		h := &tar.Header{Name: entries[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(entries[i+1]))}
		if link, ok := strings.CutPrefix(entries[i+1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		}
		must.Do(t, out.WriteHeader(h))
		if h.Size > 0 {
			must.Get(out.Write([]byte(entries[i+1])))(t)
		}
	}
	must.Do(t, out.Close())
	must.Do(t, zipped.Close())
	must.Do(t, f.Close())
	return file
}

const about = "name: shop\ndescription: A\n  shop.\n"

// A directory and its archive are the same chart.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{"Chart.yaml": about, "values.yaml": "a: 1\n", "templates/a.yaml": "x", ".git/config": "no"})
	c := must.Get(Read(dir))(t)
	if c.Name != "shop" || c.Description != "A shop." || string(c.File("values.yaml")) != "a: 1\n" || c.File("none") != nil {
		t.Errorf("the chart is %+v", c)
	}
	packed := must.Get(Read(archive(t, "shop/values.yaml", "a: 1\n", "shop/Chart.yaml", about, "shop/templates/a.yaml", "x")))(t)
	if diff := cmp.Diff(c, packed); diff != "" {
		t.Errorf("(-directory +archive)\n%s", diff)
	}
}

// A directory or archive that is no chart is refused, and so is an archive that would write outside. The error says why.
func TestRead_Refuses(t *testing.T) {
	t.Parallel()
	linked := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(linked, "Chart.yaml"), []byte(about), 0o600))
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(linked, "values.yaml")))
	for where, want := range map[string]string{
		t.TempDir():                         "no Chart.yaml",
		linked:                              "values.yaml is not a regular file",
		filepath.Join(linked, "Chart.yaml"): "neither a directory nor an archive",
		archive(t, "shop/Chart.yaml", about, "shop/../../x", "y"):                                                    `"shop/../../x" is not a regular file`,
		archive(t, "/shop/Chart.yaml", about):                                                                        `"/shop/Chart.yaml" is not a regular file`,
		archive(t, "shop/Chart.yaml", about, "shop/a/../../../x", "y"):                                               "is not a regular file",
		archive(t, "shop/Chart.yaml", "->/etc/passwd"):                                                               "is not a regular file",
		archive(t, "shop/Chart.yaml", "name: ../shop\n"):                                                             `the name "../shop" in Chart.yaml`,
		archive(t, "shop/Chart.yaml", "name: shop\ntype: library\n"):                                                 "a library chart cannot be installed",
		archive(t, "shop/Chart.yaml", "name: shop\ndependencies: [{name: db}]\n", "shop/charts/dbx/Chart.yaml", "x"): "helm dependency build",
		archive(t, "shop/Chart.yaml", about, "shop/large", strings.Repeat("a", maxFile+1)):                           "at most",
	} {
		if _, err := Read(where); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to say %q", err, want)
		}
	}
}
