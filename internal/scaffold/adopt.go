package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// image is the base image of a project's image.
const image = "rolewright/operator"

var (
	// incumbentBase is the line of a Dockerfile that names ansible-operator's image, or helm-operator's,
	// or Red Hat's build of one, such as ose-ansible-rhel9-operator.
	incumbentBase = regexp.MustCompile(`(?m)^(FROM[ \t]+(?:--\S+[ \t]+)*)\S*/?(ansible|helm)(?:-rhel\d+)?-operator(?:[:@]\S+)?([ \t\r]|$)`)
	// incumbentRun is the line of a Makefile that runs the one or the other.
	incumbentRun = regexp.MustCompile(`(?m)^(\t.*)(?:\$\((?:ANSIBLE|HELM)_OPERATOR\)|\b(?:ansible|helm)-operator) run\b`)
	// incumbentTool matches the target that downloads such a program, where the target run depends on it.
	incumbentTool = regexp.MustCompile(`(?m)^(run:.*?)[ \t]+(?:ansible|helm)-operator\b`)
	devTarget     = regexp.MustCompile(`(?m)^dev:`)
)

// Adopt returns the files of a project of operator-sdk that have to change for Rolewright:
// its Dockerfile and its Makefile, with only the lines changed that name ansible-operator
// or helm-operator. Roles, playbooks, watches.yaml and manifests stay. notes say
// what people have to check themselves.
func Adopt(dir string) (files []File, notes []string, err error) {
	p, err := Read(dir)
	if err != nil {
		return nil, nil, err
	}
	ansible := slices.ContainsFunc(p.Layout, func(l string) bool { return strings.HasPrefix(l, "ansible.") || strings.Contains(l, "/ansible") })
	if !ansible && !p.Charts() {
		return nil, nil, fmt.Errorf("%s: the layout %q is neither that of an Ansible project nor of a Helm project", projectFile, p.Layout)
	}
	for _, f := range []struct {
		path   string
		change func(text string) (string, string)
	}{{"Dockerfile", adoptDockerfile}, {"Makefile", adoptMakefile}} {
		data, err := os.ReadFile(filepath.Join(dir, f.path))
		if errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, "there is no "+f.path)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		text, note := f.change(string(data))
		if note != "" {
			notes = append(notes, f.path+": "+note)
		}
		files = append(files, File{Path: f.path, Text: text, Replaces: true})
	}
	return files, notes, nil
}

// WithImage returns a Dockerfile, or a line of one, with Rolewright's image in place of
// ansible-operator's or helm-operator's.
func WithImage(text string) string {
	return incumbentBase.ReplaceAllStringFunc(text, func(line string) string {
		m := incumbentBase.FindStringSubmatch(line)
		if m[2] == "helm" {
			return m[1] + chartsImage + m[3]
		}
		return m[1] + image + m[3]
	})
}

// WithProgram returns a Makefile, or a line of one, that runs rolewright instead of
// ansible-operator or helm-operator, and no longer downloads those for that.
func WithProgram(text string) string {
	return incumbentTool.ReplaceAllString(incumbentRun.ReplaceAllString(text, "${1}rolewright run"), "${1}")
}

func adoptDockerfile(text string) (changed, note string) {
	changed = WithImage(text)
	if changed == text && !strings.Contains(text, image) {
		note = "no line FROM names ansible-operator or helm-operator: build the image on " + image + " or " + chartsImage + " yourself"
	}
	return changed, note
}

func adoptMakefile(text string) (changed, note string) {
	changed = WithProgram(text)
	if changed == text && !strings.Contains(text, "rolewright run") {
		note = "no target runs ansible-operator or helm-operator: start the operator with rolewright run"
	}
	if !devTarget.MatchString(changed) {
		changed = strings.TrimRight(changed, "\n") + "\n\n.PHONY: dev\ndev: ## Run the operator while its roles are written.\n\trolewright dev\n"
	}
	return changed, note
}
