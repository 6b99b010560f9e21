package main

import (
	"io"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/test/must"
)

// generate chart and generate bundle do not overwrite files that people have written.
func TestGenerateChartAndBundle_LeaveWhatIsOfOthers(t *testing.T) {
	writeProject(t, map[string]string{
		"other/Chart.yaml":          "name: other\n",
		"made/Chart.yaml":           "name: shop\n",
		"bundle/metadata/old.yaml":  "",
		"bundle/tests/own.yaml":     "",
		"bundle/metadata/mark.yaml": "",
	})
	for dir, refused := range map[string]bool{"other": true, "./config/chart": true, "made": false, "none": false} {
		if err := checkChartOutput(dir, []byte("name: shop\n")); (err != nil) != refused {
			t.Errorf("%s: %v", dir, err)
		}
	}
	made := []byte("# Written by make bundle.\nFROM scratch\n")
	must.Do(t, isOwnBundle(made))
	for text, refused := range map[string]bool{"FROM scratch\nLABEL own=yes\n": true, "# Written by make bundle.\nLABEL old=yes\n": false} {
		must.Do(t, os.WriteFile(bundleDockerfile, []byte(text), 0o600))
		if err := isOwnBundle(made); (err != nil) != refused {
			t.Errorf("%s with %q: %v", bundleDockerfile, text, err)
		}
	}
	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	must.Do(t, replaceDirectory(cmd, "bundle", "metadata/mark.yaml", map[string][]byte{"metadata/new.yaml": nil}, "manifests", "metadata"))
	for path, want := range map[string]bool{"bundle/tests/own.yaml": true, "bundle/metadata/old.yaml": false, "bundle/metadata/new.yaml": true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
