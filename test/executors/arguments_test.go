package executors

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// zipped returns a zip file in base64, like the one in the file of a module.
func zipped(t *testing.T) string {
	t.Helper()
	var buffer bytes.Buffer
	writer := zip.NewWriter(&buffer)
	file := must.Get(writer.CreateHeader(&zip.FileHeader{Name: "ansible/__init__.py", Method: zip.Store}))(t)
	fmt.Fprintln(file, "#", random(6000))
	must.Do(t, writer.Close())
	return base64.StdEncoding.EncodeToString(buffer.Bytes())
}

// random returns random text of this length from the base64 alphabet.
func random(size int) string {
	source := rand.NewChaCha8([32]byte{1}) // the same every time
	data := make([]byte, size)
	_, _ = source.Read(data) // it cannot fail
	return base64.StdEncoding.EncodeToString(data)[:size]
}

// arguments are the texts that modules must get, by name.
func arguments(t *testing.T) map[string]string {
	t.Helper()
	archive := zipped(t)
	texts := map[string]string{
		"one":     "x",
		"4095":    random(4095),
		"4096":    random(4096),
		"100000":  random(100_000),
		"zip":     archive,
		"marker":  "ROLEWRIGHT ARCHIVE",
		"new":     "\nzip_data='" + archive + "',\n)\n",
		"old":     "\n    ZIPDATA = \"\"\"" + archive + "\"\"\"\n_ANSIBALLZ_WRAPPER = True\n",
		"quotes":  `it's "quoted" ''' """ \' \" \\ \`,
		"lines":   "lines\n\r\n\r\t\v\f\u0085\u2028\u2029 \u00e9\u6f22\U0001f600\n\n",
		"nul":     "nul \x00 \\0 \\x00 \\u0000 \x01\x1b\x7f",
		"braces":  "braces {{ 1 + 1 }} {% raw %} {# #} %(params)s %s {0} ${HOME} $(id) `id`",
		"program": "program')\nimport os\nos._exit(3)\n# \"\"\"\n)",
		"yaml":    "yaml: &x [1, *x]\n--- !unsafe\n...\n# {a: b}\n",
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		all.WriteString(texts[name])
	}
	texts["all"] = all.String()
	return texts
}

// large is the size of the one very long argument.
const large = 8 << 20

// argumentsPlay is a playbook in which modules get the texts that are in files with their names. %s is the data of a
// ConfigMap. Modules write their arguments to syslog, which does not accept NUL, unless something tells them not to.
const argumentsPlay = `
- hosts: localhost
  gather_facts: false
  vars:
    ansible_no_target_syslog: true
    text: "{{ lookup('file', playbook_dir ~ '/texts/' ~ item, rstrip=false) }}"
  tasks:
  - command: {argv: [dd, "of={{ out }}/command-{{ item }}", status=none], stdin: "{{ text }}", stdin_add_newline: false}
    loop: [one, 4095, 4096, zip, marker, new, old, all]
  - command: {argv: [dd, "of={{ out }}/command-large", status=none], stdin: "{{ text }}", stdin_add_newline: false}
    vars: {item: large}
    no_log: true
  - uri: {url: "{{ server }}/uri-{{ item }}", method: POST, body: "{{ text }}"}
    loop: [zip, all]
  - template: {src: text.j2, dest: "{{ out }}/template-all", mode: "0600"}
    vars: {item: all}
  - set_fact: {fact: "{{ text }}"}
    vars: {item: all}
  - copy: {content: "{{ fact }}", dest: "{{ out }}/copy-all", mode: "0600"}
  - k8s:
      definition:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: k8s, namespace: "{{ namespace_of_run }}"}
        binaryData: {binary: "{{ lookup('file', playbook_dir ~ '/texts/zip') }}"}
        data:
%s`

// argumentsProject writes the playbook with its texts, and returns what must arrive, by name.
func argumentsProject(t *testing.T) (playbook string, want map[string]string) {
	t.Helper()
	texts := arguments(t)
	texts["large"] = random(large)
	files := map[string]string{"templates/text.j2": "{{ text }}"}
	want = map[string]string{"uri-zip": texts["zip"], "uri-all": texts["all"], "template-all": texts["all"], "copy-all": texts["all"]}
	for _, name := range []string{"one", "4095", "4096", "zip", "marker", "new", "old", "all", "large"} {
		want["command-"+name] = texts[name]
	}
	var data strings.Builder
	for name, text := range texts {
		files["texts/"+name] = text
		if name != "large" {
			want["k8s-"+name] = text
			fmt.Fprintf(&data, "          %q: \"{{ lookup('file', playbook_dir ~ '/texts/%s', rstrip=false) }}\"\n", name, name)
		}
	}
	binary := must.Get(base64.StdEncoding.DecodeString(texts["zip"]))(t)
	want["k8s-binary"] = string(binary)
	files["play.yml"] = fmt.Sprintf(argumentsPlay, data.String())
	return filepath.Join(project(t, files), "play.yml"), want
}

// A module gets its arguments byte for byte, whatever they are and however the run is made: long arguments, and arguments
// that look like the file of a module.
func TestModule_GetsItsArguments(t *testing.T) {
	w, cfg := bothWays(t), testenv.Config(t)
	playbook, want := argumentsProject(t)
	var events [2][]any
	for i, r := range []*runner.Runner{w.executed, w.forked} {
		got := map[string]string{}
		p := place{out: t.TempDir(), namespace: testenv.Namespace(t, cfg), kubeconfig: testenv.Kubeconfig(t, cfg), server: listener(t, got)}
		s := sample{content: runner.Content{Playbook: playbook}, options: sampleOptions{Cluster: true}}
		req := s.request(t, p)
		res, err := r.Run(t.Context(), req)
		if err != nil || !res.Verdict().Success {
			t.Fatalf("forked: %v: %v, %+v", r == w.forked, err, res.Verdict())
		}
		for name := range want {
			if text, err := os.ReadFile(filepath.Join(p.out, name)); err == nil {
				got[name] = string(text)
			}
		}
		client := must.Get(kubernetes.NewForConfig(cfg))(t)
		made := must.Get(client.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), "k8s", metav1.GetOptions{}))(t)
		got["k8s-binary"] = string(made.BinaryData["binary"])
		for name, text := range made.Data {
			got["k8s-"+name] = text
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%s, forked: %v: %d bytes arrived, of %d: %.200q", name, r == w.forked, len(got[name]), len(want[name]), got[name])
			}
		}
		n := normaliser{names: strings.NewReplacer(req.Dir, "DIR", p.out, "OUT", req.ID, "ID", p.server, "SERVER", p.namespace, "NAMESPACE", p.kubeconfig, "KUBECONFIG")}
		events[i], _ = n.events(t, filepath.Join(req.Dir, "artifacts", req.ID, "job_events"))
	}
	if diff := gocmp.Diff(events[0], events[1]); diff != "" {
		t.Errorf("executed (-), forked (+):\n%s", diff)
	}
	if trace := w.traced(t); strings.Contains(trace, "executed") {
		t.Errorf("all is to be forked:\n%s", trace)
	}
}

// listener is a server that records what is sent to it, by path.
func listener(t *testing.T, got map[string]string) string {
	t.Helper()
	var lock sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		lock.Lock()
		defer lock.Unlock()
		got[strings.TrimPrefix(r.URL.Path, "/")] = string(body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
