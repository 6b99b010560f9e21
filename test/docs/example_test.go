package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// The files that docs/microservice.md has its readers write are those of examples/microservice.
func TestDocuments_TheMicroserviceIsTheExample(t *testing.T) {
	const document = "docs/microservice.md"
	written := regexp.MustCompile(`(?s)cat > (\S+) <<'END'\n(.*)END$`)
	files := 0
	for _, b := range must.Get(blocksOf(document, read(t, document)))(t) {
		for _, c := range must.Get(b.commands())(t) {
			m := written.FindStringSubmatch(c.text)
			if m == nil {
				continue
			}
			files++
			path := filepath.Join("examples/microservice", m[1])
			if have := string(must.Get(os.ReadFile(filepath.Join(repository, path)))(t)); strings.TrimSpace(have) != strings.TrimSpace(m[2]) {
				t.Errorf("%s:%d: %s has another text", document, c.line, path)
			}
		}
	}
	if files != 6 {
		t.Errorf("it writes %d files, want 6", files)
	}
}

// The program in docs/go.md is examples/go-manager, which another test builds and runs.
func TestDocuments_TheGoProgramIsTheExample(t *testing.T) {
	text := strings.Join(read(t, "docs/go.md"), "\n")
	for language, file := range map[string]string{"go": "main.go", "yaml": "watches.yaml"} {
		have := string(must.Get(os.ReadFile(filepath.Join(repository, "examples/go-manager", file)))(t))
		if !strings.Contains(text, "```"+language+"\n"+have+"```\n") {
			t.Errorf("docs/go.md has another %s than examples/go-manager", file)
		}
	}
}
