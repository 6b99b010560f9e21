package scaffold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// SpecOption is an option of the argument spec of a role, and where it is.
type SpecOption struct {
	Name, File string
	Line       int
	// Unused is true if no file of the role has the name. It is never true for a role that
	// runs other roles, or that reads variables by names which are expressions.
	Unused bool
}

// SpecOptions are those of a role, none if it has no argument spec. The path of its file
// begins with the one of the role.
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
	// elsewhere is what makes it unknown which variables a role reads.
	elsewhere = regexp.MustCompile(`\b(include_role|import_role|hostvars|varnames)\b|\bvars\s*\[|['"]vars['"]|(?m)^dependencies:\s*\n\s*-`)
	// defaultKeys are the variables that a file of defaults sets, which is no use of them.
	defaultKeys = regexp.MustCompile(`(?m)^[A-Za-z_]\w*:`)
)

// largestText is how large a file may be that is read.
const largestText = 1 << 20

// textsOf are the files of a role that may read its variables.
func textsOf(role string) (string, error) {
	var all strings.Builder
	err := filepath.WalkDir(role, func(path string, entry fs.DirEntry, err error) error {
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
		if dir == "meta" { // for its dependencies alone
			text = strings.Join(elsewhere.FindAllString(text, -1), "\n")
		}
		all.WriteString(text + "\n")
		return err
	})
	return all.String(), err
}
