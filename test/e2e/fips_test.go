package e2e

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// broken are packages of algorithms that FIPS 140 does not approve.
var broken = []string{"crypto/des", "crypto/md5", "crypto/rc4", "crypto/sha1", "golang.org/x/crypto/md4", "golang.org/x/crypto/ripemd160"}

// otherwise matches content that asks for MD5 or SHA-1: Python modules, Ansible filters. hash without an argument is
// SHA-1.
var otherwise = regexp.MustCompile(`(?i)\b_?(md5|sha1)\b|hashlib\.new|\|\s*(checksum\b|hash\s*(\(\s*\)|[^(\s]|$))`)

func TestFIPS_OurCodeHasNoMD5AndNoSHA1(t *testing.T) {
	t.Parallel()
	looked := map[string]int{}
	must.Do(t, filepath.WalkDir(absolute(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"bin", ".git", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		switch ext := filepath.Ext(path); ext {
		case ".go":
			looked[ext]++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, imported := range file.Imports {
				if slices.Contains(broken, strings.Trim(imported.Path.Value, `"`)) {
					t.Errorf("%s imports %s", path, imported.Path.Value)
				}
			}
		case ".py", ".yml", ".yaml", ".j2", ".sh":
			looked[ext]++
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(data), "\n") {
				if found := otherwise.FindString(line); found != "" {
					t.Errorf("%s:%d: %s", path, i+1, found)
				}
			}
		}
		return nil
	}))
	if looked[".go"] < 100 || looked[".py"] < 5 || looked[".j2"] < 2 {
		t.Errorf("the test sees too little: %v", looked)
	}
}

// The program is linked with these algorithms only in these places. fips140=only, below, would end the operator if one
// were used.
func TestFIPS_DependenciesHaveThemWhereKnown(t *testing.T) {
	t.Parallel()
	known := []string{
		"github.com/go-task/slim-sprig/v3", // functions of overrideValues for SHA-1
		"github.com/google/uuid",           // UUIDs of versions 3 and 5, which nothing here creates
		"github.com/gorilla/websocket",     // the handshake of a client that forwards a port, which the command does with SPDY
		"golang.org/x/net/websocket",       // the handshake of its own client or server; the proxy copies bytes
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		`{{if not .Standard}}{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{end}}`, "./cmd/rolewright")
	list.Dir = absolute(t)
	out := must.Get(list.Output())(t)
	var found []string
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		if len(imports) > 0 && slices.ContainsFunc(imports[1:], func(i string) bool { return slices.Contains(broken, i) }) {
			found = append(found, imports[0])
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, known) {
		t.Errorf("dependencies with MD5, SHA-1, DES or RC4: %v, known are %v", found, known)
	}
}

func TestFIPS_OnlyApprovedAlgorithms(t *testing.T) {
	t.Parallel()
	// Go ignores an unknown setting, but not a wrong value: the program uses this setting.
	probe := exec.CommandContext(t.Context(), binary(t), "version")
	probe.Env = append(cleanEnvironment(), "GODEBUG=fips140=neither")
	if out, err := probe.CombinedOutput(); err == nil || !strings.Contains(string(out), "fips140") {
		t.Fatalf("the program does not heed GODEBUG=fips140: %v\n%s", err, out)
	}
	for _, executor := range []string{"warm", "runner"} {
		t.Run(executor, func(t *testing.T) {
			s := newStage(t)
			k := s.kind()
			s.role("main", `- name: Use the proxy
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: "{{ ansible_operator_meta.namespace }}"}}
`)
			s.watch(k, "role: main", "finalizer: {name: rolewright.test/fips, role: main}")
			s.env = append(s.env, "GODEBUG=fips140=only")
			o := s.start(append(longLease(), "--executor="+executor, "--metrics-secure", "--leader-elect", "--leader-election-id=fips",
				"--leader-election-namespace="+s.namespace)...)
			k.create("it", nil)
			k.awaitReady("it")
			k.delete("it")
			k.awaitGone("it")
			o.stop()
		})
	}
}
