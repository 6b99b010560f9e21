//go:build e2e

package cluster

import (
	"archive/tar"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// image is the content of an archive of `make image`.
type image struct {
	files  map[string]*tar.Header // by path, without a leading slash; later layers replace earlier ones
	small  map[string][]byte      // contents that the test reads
	config struct {
		Config struct {
			User, WorkingDir string
			Env, Entrypoint  []string
			Labels           map[string]string
		}
		RootFS struct {
			Layers []string `json:"diff_ids"`
		}
	}
}

// wanted reports whether the test reads the file. Of what Python has compiled it reads the first bytes.
func wanted(name string) bool {
	return name == "var/lib/dpkg/status" || name == "version" || name == "doctor" || strings.HasPrefix(name, "usr/share/sbom/") || strings.HasSuffix(name, ".pyc")
}

// readImage reads an archive in the format of `docker save`: layers on top of each other, and a configuration.
func readImage(t *testing.T, archive string) image {
	t.Helper()
	found := image{files: map[string]*tar.Header{}, small: map[string][]byte{}}
	var manifest []struct {
		Config string
		Layers []string
	}
	decode(t, archive, "manifest.json", &manifest)
	decode(t, archive, manifest[0].Config, &found.config)
	for _, layer := range manifest[0].Layers {
		walk(t, archive, func(name string, _ *tar.Header, content io.Reader) error {
			if name != layer {
				return nil
			}
			return entries(content, found.add)
		})
	}
	return found
}

func (i image) add(name string, header *tar.Header, content io.Reader) error {
	name = strings.Trim(path.Clean("/"+name), "/")
	if gone, found := strings.CutPrefix(path.Base(name), ".wh."); found {
		gone = path.Join(path.Dir(name), gone)
		for known := range i.files {
			if known == gone || strings.HasPrefix(known, gone+"/") {
				delete(i.files, known)
			}
		}
		return nil
	}
	i.files[name] = header
	if !wanted(name) {
		return nil
	}
	if strings.HasSuffix(name, ".pyc") {
		content = io.LimitReader(content, 16)
	}
	data, err := io.ReadAll(content)
	i.small[name] = data
	return err
}

func decode(t *testing.T, archive, file string, into any) {
	t.Helper()
	walk(t, archive, func(name string, _ *tar.Header, content io.Reader) error {
		if name != file {
			return nil
		}
		return json.NewDecoder(content).Decode(into)
	})
}

func walk(t *testing.T, archive string, visit func(string, *tar.Header, io.Reader) error) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatalf("open the image, which `make e2e` builds: %v", err)
	}
	defer file.Close()
	if err := entries(file, visit); err != nil {
		t.Fatalf("read %s: %v", archive, err)
	}
}

func entries(archive io.Reader, visit func(string, *tar.Header, io.Reader) error) error {
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(header.Name, header, reader)
		}
		if err != nil {
			return err
		}
	}
}

// TestImage checks the files of the image from which operators are built.
func TestImage(t *testing.T) {
	ours := readImage(t, filepath.Join(repository, "bin/image/rolewright-operator.tar"))

	t.Run("is begun as ansible-operator's is", func(t *testing.T) {
		config := ours.config.Config
		if config.User != "1001:0" || config.WorkingDir != "/opt/ansible" || !slices.Contains(config.Env, "HOME=/opt/ansible") {
			t.Errorf("user %q in %q with %q", config.User, config.WorkingDir, config.Env)
		}
		if want := []string{"/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"}; !slices.Equal(config.Entrypoint, want) {
			t.Errorf("the entrypoint is %q, want %q", config.Entrypoint, want)
		}
		for name, target := range map[string]string{"usr/local/bin/ansible-operator": "rolewright", "tini": "usr/bin/tini"} {
			if file := ours.files[name]; file == nil || file.Linkname != target {
				t.Errorf("/%s does not lead to %s", name, target)
			}
		}
		for _, label := range []string{"title", "description", "source", "licenses", "version", "revision"} {
			if config.Labels["org.opencontainers.image."+label] == "" {
				t.Errorf("no label %s: %v", label, config.Labels)
			}
		}
		if version := config.Labels["org.opencontainers.image.version"]; !strings.HasPrefix(version, "v") {
			t.Errorf("its version is %q", version)
		}
	})
	t.Run("lets only its owner write", func(t *testing.T) {
		for name, file := range ours.files {
			if mode := file.FileInfo().Mode(); mode.Perm()&0o022 != 0 && mode.Type() != fs.ModeSymlink && name != "tmp" {
				t.Errorf("/%s has mode %s", name, mode)
			}
		}
	})
	t.Run("has nothing that builds or downloads programs", func(t *testing.T) {
		tools := regexp.MustCompile(`^(usr/)?(local/)?s?bin/(pip[0-9.]*|(x86_64|aarch64)-linux-gnu-.*|g?cc|c\+\+|g\+\+|make|ld|git|curl)$|/dist-packages/pip/`)
		for name := range ours.files {
			if tools.MatchString(name) {
				t.Errorf("/%s is there", name)
			}
		}
	})
	t.Run("stands on a base of one's own", func(t *testing.T) {
		rebased := readImage(t, filepath.Join(repository, "bin/image/rolewright-rebased.tar"))
		if rebased.files["etc/own-base"] == nil || !slices.Equal(rebased.config.Config.Entrypoint, ours.config.Config.Entrypoint) {
			t.Errorf("--build-arg BASE gives an image without the base's file, or another one: %+v", rebased.config.Config)
		}
	})
	t.Run("is one program, which other images take", otherImages)
	t.Run("names all that is in it", func(t *testing.T) { complete(t, ours) })
	t.Run("has compiled what Python imports", func(t *testing.T) { compiled(t, ours) })
}

// otherImages checks the image with only the program, and one with Ansible that has copied the program and called it.
func otherImages(t *testing.T) {
	alone := readImage(t, filepath.Join(repository, "bin/image/rolewright-binary.tar"))
	if len(alone.files) != 1 || alone.files["rolewright"] == nil || alone.files["rolewright"].FileInfo().Mode() != 0o755 {
		t.Errorf("the image of the program has %v, want rolewright alone, for all to execute", slices.Collect(maps.Keys(alone.files)))
	}
	took := readImage(t, filepath.Join(repository, "bin/image/own-ansible.tar"))
	if said := string(took.small["version"]); !strings.Contains(said, "ansible-operator version") {
		t.Errorf("ansible-operator version says %q", said)
	}
	if said := string(took.small["doctor"]); !strings.Contains(said, "runs can be forked") {
		t.Errorf("ansible-operator doctor says\n%s", said)
	}
}

// complete compares the list of contents with the list of Debian's package manager.
func complete(t *testing.T, ours image) {
	t.Helper()
	var list struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component struct{ Version string } }
		Components             []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(ours.small["usr/share/sbom/rolewright.cdx.json"], &list); err != nil {
		t.Fatalf("read the list of contents: %v", err)
	}
	if !strings.HasPrefix(list.Metadata.Component.Version, "v") {
		t.Errorf("the list is of %+v", list.Metadata)
	}
	if list.BOMFormat != "CycloneDX" || list.SpecVersion != "1.5" {
		t.Errorf("the list is in %s %s", list.BOMFormat, list.SpecVersion)
	}
	named := map[string]bool{}
	for _, component := range list.Components {
		if component.Version == "" || component.Version == "(devel)" || !strings.HasPrefix(component.PURL, "pkg:") {
			t.Errorf("%+v", component)
		}
		named[component.Name] = true
	}
	for _, want := range []string{"github.com/rolewright/rolewright", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "stdlib", "kubernetes.core"} {
		if !named[want] {
			t.Errorf("the list does not name %s", want)
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^Package: (\S+)\nStatus: install ok installed$`).FindAllSubmatch(ours.small["var/lib/dpkg/status"], -1) {
		if !named[string(match[1])] {
			t.Errorf("the list does not name the package %s", match[1])
		}
	}
}

// compiled checks that Python accepts the compiled files: it compares the time of a source with the recorded one. If they
// differ, every start of every module compiles again, because nothing can be written.
func compiled(t *testing.T, ours image) {
	t.Helper()
	sources, stale := 0, 0
	for name, header := range ours.files {
		if !strings.HasSuffix(name, ".py") || !strings.Contains(name, "/ansible") && !strings.Contains(name, "/kubernetes/") {
			continue
		}
		sources++
		base := strings.TrimSuffix(path.Base(name), ".py")
		if err := fresh(ours.small, path.Join(path.Dir(name), "__pycache__", base), header); err != nil {
			if stale++; stale <= 5 {
				t.Errorf("/%s: %v", name, err)
			}
		}
	}
	if sources < 1000 {
		t.Errorf("only %d sources of Ansible and the client of Kubernetes found", sources)
	}
}

func fresh(files map[string][]byte, prefix string, source *tar.Header) error {
	for _, version := range []string{"313", "314", "315"} {
		head := files[prefix+".cpython-"+version+".pyc"]
		if len(head) < 16 {
			continue
		}
		if flags := binary.LittleEndian.Uint32(head[4:]); flags != 0 {
			return fmt.Errorf("compiled for a hash of the source (flags %d), which every import computes", flags)
		}
		if noted := int64(binary.LittleEndian.Uint32(head[8:])); noted != source.ModTime.Unix() {
			return fmt.Errorf("compiled for time %d, its own is %d", noted, source.ModTime.Unix())
		}
		return nil
	}
	return errors.New("not compiled")
}
