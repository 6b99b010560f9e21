// Package chartdir reads the files of a Helm chart, which is a directory or an archive, as far as the commands need it
// that write a project. It renders nothing.
package chartdir

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// What a chart may have at most. Helm has the same limit for a file.
const (
	maxFile  = 5 << 20
	maxBytes = 32 << 20
	maxFiles = 10_000
)

// File is a file of a chart. Its path is relative to the chart, with slashes.
type File struct {
	Path string
	Data []byte
}

// Chart is what is known of a chart.
type Chart struct {
	Name, Description string
	// Files are all of them, by their paths. Those of subcharts in archives are not among them.
	Files []File
}

// name is that of a chart: a directory gets it.
var name = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// Read reads a chart. The error says what is wrong with it, and what to do.
func Read(where string) (*Chart, error) {
	info, err := os.Stat(where)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	var files []File
	if info.IsDir() {
		files, err = ofDirectory(where)
	} else {
		files, err = ofArchive(where)
	}
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	c, err := of(files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return c, nil
}

// File is the content of a file of the chart; nil if there is none.
func (c *Chart) File(path string) []byte {
	if i := slices.IndexFunc(c.Files, func(f File) bool { return f.Path == path }); i >= 0 {
		return c.Files[i].Data
	}
	return nil
}

func of(files []File) (*Chart, error) {
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	c := &Chart{Files: files}
	data := c.File("Chart.yaml")
	if data == nil {
		return nil, errors.New("it has no Chart.yaml: pass the directory of a chart, or an archive made by \"helm package\"")
	}
	var about struct {
		Name, Description, Type string
		Dependencies            []struct{ Name string }
	}
	if err := yaml.Unmarshal(data, &about); err != nil {
		return nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	switch {
	case !name.MatchString(about.Name):
		return nil, fmt.Errorf("the name %q in Chart.yaml is invalid: use letters, digits, -, . and _", about.Name)
	case about.Type == "library":
		return nil, errors.New("a library chart cannot be installed: pass the chart that uses it")
	}
	for _, d := range about.Dependencies {
		there := func(f File) bool {
			rest, ok := strings.CutPrefix(f.Path, "charts/"+d.Name)
			return ok && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "-"))
		}
		if !slices.ContainsFunc(files, there) {
			return nil, fmt.Errorf("the dependency %s is not in charts/: run \"helm dependency build\" in the directory of the chart", d.Name)
		}
	}
	c.Name, c.Description = about.Name, strings.Join(strings.Fields(about.Description), " ")
	return c, nil
}

// sum counts what has been read.
type sum struct {
	files []File
	bytes int
}

func (s *sum) add(where string, r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return err
	}
	if s.bytes += len(data); len(data) > maxFile || s.bytes > maxBytes || len(s.files) == maxFiles {
		return fmt.Errorf("%s: a chart has at most %d files, each of at most %d MiB, and %d MiB in all", where, maxFiles, maxFile>>20, maxBytes>>20)
	}
	s.files = append(s.files, File{Path: where, Data: data})
	return nil
}

func ofDirectory(dir string) ([]File, error) {
	var s sum
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(where string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: replace it with the file it points to", filepath.Join(dir, where))
		}
		f, err := root.Open(where)
		if err != nil {
			return err
		}
		defer f.Close()
		return s.add(where, f)
	})
	return s.files, err
}

func ofArchive(file string) ([]File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unpack(file, f)
}

// Subcharts are the charts in archives below charts/; those in directories are files of the chart. One is as deep as
// the next: the archives in them are not read.
func (c *Chart) Subcharts() (all []*Chart, err error) {
	for _, f := range c.Files {
		if dir, _ := path.Split(f.Path); path.Base(dir) != "charts" || !strings.HasSuffix(f.Path, ".tgz") {
			continue
		}
		files, err := unpack(f.Path, bytes.NewReader(f.Data))
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", c.Name, err)
		}
		all = append(all, &Chart{Name: strings.TrimSuffix(path.Base(f.Path), ".tgz"), Files: files})
	}
	return all, nil
}

// unpack reads an archive; file is its name for errors.
func unpack(file string, from io.Reader) ([]File, error) {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("%s is neither a directory nor an archive made by \"helm package\": %w", file, err)
	}
	var s sum
	// Headers that are never added count, too.
	archive := tar.NewReader(io.LimitReader(unzipped, 2*maxBytes))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return s.files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if header.Typeflag == tar.TypeDir || header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		_, where, below := strings.Cut(path.Clean(header.Name), "/") // the first is the directory of the chart
		if header.Typeflag != tar.TypeReg || !below || !filepath.IsLocal(where) || strings.ContainsAny(where, "\\\x00") || path.IsAbs(header.Name) || strings.HasPrefix(path.Clean(header.Name), "..") {
			return nil, fmt.Errorf("%s: the entry %q is not a regular file in the directory of the chart", file, header.Name)
		}
		if err := s.add(where, archive); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}
