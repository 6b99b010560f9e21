package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

var (
	link    = regexp.MustCompile(`(?:\]\(|\bsrc(?:set)?=")([^)"\s]+)[)"]`)
	heading = regexp.MustCompile("^#+ +(.*)$")
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	indexed := map[string]bool{}
	for _, document := range slices.Concat(documents(t), runbooks(t)) {
		for i, line := range read(t, document) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				path, anchor, _ := strings.Cut(m[1], "#")
				target := document
				if path != "" {
					target = filepath.Join(filepath.Dir(document), path)
				}
				if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
					t.Errorf("%s:%d: %v", document, i+1, err)
					continue
				}
				if document == "docs/index.md" {
					indexed[target] = true
				}
				if anchor != "" && !hasAnchor(t, target, anchor) {
					t.Errorf("%s:%d: %s has no heading #%s", document, i+1, target, anchor)
				}
			}
		}
	}
	for _, document := range documents(t) {
		if strings.HasPrefix(document, "docs/") && document != "docs/index.md" && !indexed[document] {
			t.Errorf("docs/index.md does not lead to %s", document)
		}
	}
}

// runbooks returns the pages of alerts. Their commands need a cluster in trouble.
func runbooks(t *testing.T) (pages []string) {
	t.Helper()
	for _, path := range must.Get(filepath.Glob(filepath.Join(repository, "docs/runbooks/*.md")))(t) {
		pages = append(pages, filepath.Join("docs/runbooks", filepath.Base(path)))
	}
	return pages
}

// hasAnchor reports whether a document has a heading with that anchor. Anchors are built as the usual renderers do.
func hasAnchor(t *testing.T, document, anchor string) bool {
	t.Helper()
	for _, line := range read(t, document) {
		if m := heading.FindStringSubmatch(line); m != nil {
			if strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}
