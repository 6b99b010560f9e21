package scaffold

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/config"
	"github.com/rolewright/rolewright/internal/content"
)

// Files of a project that are relevant for runs as Jobs.
const (
	listedParts = "config/default/kustomization.yaml"
	manager     = "config/manager/manager.yaml"
	// JobsRole is the file with the Role that runs as Jobs need.
	JobsRole = "config/jobs/role.yaml"
)

var (
	jobsListed    = regexp.MustCompile(`(?m)^ *- \.\./jobs/?$`)
	jobsLeftOut   = regexp.MustCompile(`(?m)^( *)# - \.\./jobs/?$`)
	managerListed = regexp.MustCompile(`(?m)^( *- )\.\./manager/?$`)
	leaderFlag    = regexp.MustCompile(`(?m)^( *- )--leader-elect(ion-id=.*)?$`)
	jobURLFlag    = regexp.MustCompile(`(?m)^ *(- |value: )["']?--job-url\b`)
)

// withJobs adds to the files of a project what runs as Jobs need, and returns the directory's
// lists with these additions.
func (p Project) withJobs(dir string, base []File) (files []File, lists map[string]string, err error) {
	if files, err = p.part("jobs"); err != nil {
		return nil, nil, err
	}
	edits := map[string]func(text string) string{listedParts: listJobs}
	set, err := JobURLs(dir)
	if err != nil {
		return nil, nil, err
	}
	if len(set) == 0 || slices.Contains(set, manager) {
		edits[manager] = p.setJobURL
	}
	lists = map[string]string{}
	for _, f := range base {
		if edit, ok := edits[f.Path]; ok {
			there, err := listOf(dir, f.Path, nil)
			if err != nil {
				return nil, nil, err
			}
			if text := edit(there); text != there {
				lists[f.Path] = text
			}
			f.Text = edit(f.Text)
		}
		files = append(files, f)
	}
	return files, lists, nil
}

// part returns the files of config/NAME, which are the same for all operators except for the name.
func (p Project) part(name string) ([]File, error) {
	names, err := fs.Glob(config.Files, name+"/*.yaml")
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range names {
		text, err := config.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: "config/" + name, Text: strings.ReplaceAll(string(text), config.Name, p.Name)})
	}
	return files, nil
}

// listJobs adds config/jobs to the parts of config/default.
func listJobs(text string) string {
	if jobsListed.MatchString(text) {
		return text
	}
	if jobsLeftOut.MatchString(text) {
		return jobsLeftOut.ReplaceAllString(text, "$1- ../jobs")
	}
	return managerListed.ReplaceAllString(text, "$0\n$1../jobs")
}

// setJobURL adds the flag --job-url to the arguments of the operator.
func (p Project) setJobURL(text string) string {
	at := leaderFlag.FindStringSubmatchIndex(text)
	if at == nil || jobURLFlag.MatchString(text) {
		return text
	}
	return text[:at[0]] + text[at[2]:at[3]] + fmt.Sprintf("--job-url=https://%s-runs:8444\n", p.Name) + text[at[0]:]
}

// JobURLs returns the files below config that set the flag --job-url.
func JobURLs(dir string) ([]string, error) {
	var found []string
	root := filepath.Join(dir, "config")
	err := content.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(path, "ml") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && jobURLFlag.Match(text) {
			rel, _ := filepath.Rel(dir, path) // it is inside
			found = append(found, filepath.ToSlash(rel))
		}
		return err
	})
	if os.IsNotExist(err) {
		return nil, nil
	}
	return found, err
}
