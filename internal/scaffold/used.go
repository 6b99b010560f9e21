package scaffold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rolewright/rolewright/internal/content"
)

// SpecOption is an option in the argument spec of a role, and its place.
type SpecOption struct {
	Name, File string
	Line       int
	// Unused is true if the name does not occur in any file of the role. It is never true for a role
	// that runs other roles, or that reads variables whose names are expressions.
	Unused bool
}

// SpecOptions returns the options of a role; none if it has no argument spec. The path of the file
// begins with the path of the role.
func SpecOptions(role string) ([]SpecOption, error) {
	read := reader(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(role, name)) })
	options, err := read.options("", FromArgspec)
	if err != nil {
		return nil, nil //nolint:nilerr // there is none, or what is wrong with it is found elsewhere
	}
	text, err := textsOf(role)
	if err != nil {
		return nil, err
	}
	all := make([]SpecOption, 0, len(options))
	for _, o := range options {
		used := elsewhere.MatchString(text) || regexp.MustCompile(`\b`+regexp.QuoteMeta(o.Name)+`\b`).MatchString(text)
		all = append(all, SpecOption{Name: o.Name, File: filepath.Join(role, filepath.FromSlash(o.file)), Line: o.line, Unused: !used})
	}
	return all, nil
}

var (
	// elsewhere matches code that makes it unknown which variables a role reads.
	elsewhere = regexp.MustCompile(`\b(include_role|import_role|hostvars|varnames)\b|\bvars\s*\[|['"]vars['"]|(?m)^dependencies:\s*\n\s*-`)
	// defaultKeys matches variables that a file of defaults sets; setting is not using.
	defaultKeys = regexp.MustCompile(`(?m)^[A-Za-z_]\w*:`)
)

// largestText is the size in bytes up to which a file is read.
const largestText = 1 << 20

// textsOf returns the text of a role's files that may read its variables.
func textsOf(role string) (string, error) {
	var all strings.Builder
	err := content.WalkDir(role, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(role, path)
		if err != nil {
			return err
		}
		dir, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		if dir == "meta" && !strings.HasPrefix(filepath.Base(rel), "main.") || dir == "README.md" {
			return nil
		}
		if info, err := entry.Info(); err != nil || info.Size() > largestText {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		text := string(data)
		if dir == "defaults" {
			text = defaultKeys.ReplaceAllString(text, "")
		}
		if dir == "meta" { // only for its dependencies
			text = strings.Join(elsewhere.FindAllString(text, -1), "\n")
		}
		all.WriteString(text + "\n")
		return err
	})
	return all.String(), err
}
