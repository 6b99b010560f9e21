// Package docs runs the commands of the documentation, in document order, in a copy of the repository with a control
// plane of its own on which the example operator runs.
//
// Every fenced block of a shell is run, unless a comment right above it says why not, and what runs it:
//
//	<!-- not run: REASON; `make TARGET` runs it -->
//	<!-- not run: REASON; TestName runs it -->
//
// A block that stays in the foreground of a terminal is marked with the condition for going on:
//
//	<!-- run in the background until: SHELL CONDITION -->
package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const repository = "../.."

var (
	inMake  = regexp.MustCompile("`make ([a-z0-9-]+)[^`]*`")
	inTests = regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w*)`)
	targets = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

func TestDocuments_NameTargetsAndTestsThatExist(t *testing.T) {
	var known []string
	for _, path := range []string{"Makefile", "internal/scaffold/files/project/Makefile"} {
		makefile := must.Get(os.ReadFile(filepath.Join(repository, path)))(t)
		for _, m := range targets.FindAllStringSubmatch(string(makefile), -1) {
			known = append(known, m[1])
		}
	}
	tests := testNames(t)
	for _, document := range documents(t) {
		lines := read(t, document)
		blocks, err := blocksOf(document, lines)
		if err != nil {
			t.Error(err)
		}
		for _, b := range blocks {
			if b.notRun != "" && !inMake.MatchString(b.notRun) && !inTests.MatchString(b.notRun) {
				t.Errorf("%s: %q names neither a make target nor a test that runs it", b, b.notRun)
			}
		}
		for i, line := range lines {
			for _, m := range inMake.FindAllStringSubmatch(line, -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s:%d: the Makefile has no target %s", document, i+1, m[1])
				}
			}
			for _, m := range inTests.FindAllStringSubmatch(line, -1) {
				// A name that ends with _ stands for all names with this beginning.
				if !slices.ContainsFunc(tests, func(name string) bool {
					return name == m[1] || strings.HasSuffix(m[1], "_") && strings.HasPrefix(name, m[1])
				}) && m[1] != "TestName" {
					t.Errorf("%s:%d: there is no %s", document, i+1, m[1])
				}
			}
		}
	}
}

// testNames returns the tests and fuzz targets of all Go modules of the repository.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	must.Do(t, filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(data, -1) {
			names = append(names, string(m[1]))
		}
		return err
	}))
	return names
}

func TestDocuments_CommandsDoWhatTheySay(t *testing.T) {
	parts.Ansible(t)
	parts.Time(t)
	h := newHouse(t)
	for _, document := range documents(t) {
		blocks, err := blocksOf(document, read(t, document))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, b := range blocks {
			if b.notRun != "" {
				t.Logf("%s: not run here: %s", b, b.notRun)
			}
		}
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.notRun != "" })
		if len(blocks) > 0 {
			t.Run(document, func(t *testing.T) { h.runDocument(t, blocks) })
		}
	}
}

// house is a copy of the repository in which commands may do anything. It has a network of its own if possible.
type house struct {
	dir    string
	inside []string // prefix that runs a command in that network
	env    []string
}

// newHouse makes a house with a control plane in which the example operator runs.
func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{dir: filepath.Join(t.TempDir(), "rolewright"), inside: ownWorld(t)}
	copyRepository(t, h.dir)
	home := t.TempDir()
	for _, entry := range os.Environ() {
		if !slices.ContainsFunc([]string{"ANSIBLE_", "ROLEWRIGHT_", "K8S_AUTH_", "KUBE", "WATCH_NAMESPACE=", "OPERATOR_NAME=", "MAKE", "MFLAGS="},
			func(prefix string) bool {
				return strings.HasPrefix(entry, prefix) && !strings.HasPrefix(entry, "KUBEBUILDER_ASSETS=")
			}) {
			h.env = append(h.env, entry)
		}
	}
	h.env = append(h.env, "PATH="+h.dir+"/bin:"+h.dir+"/bin/tools:"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if out, err := h.shell("make cluster-down").CombinedOutput(); err != nil {
			t.Errorf("stop the control plane: %v\n%s", err, out)
		}
	})
	for _, step := range []string{"make build", "make cluster-up"} {
		began := time.Now()
		out, err := h.shell(step).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", step, err, out)
		}
		t.Logf("%s: %s", step, time.Since(began).Round(time.Second))
		if _, value, found := strings.Cut(string(out), "export KUBECONFIG="); found {
			h.env = append(h.env, "KUBECONFIG="+strings.Trim(strings.TrimSpace(value), "'"))
		}
	}
	h.startExample(t, home)
	return h
}

// shell returns a command that runs a script in the house.
func (h *house) shell(script string) *exec.Cmd {
	// nsenter does not keep the working directory.
	args := append(slices.Clone(h.inside), "bash", "-c", "cd '"+h.dir+"' || exit\n"+script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = h.env
	return cmd
}

// startExample starts the example operator on ports that no document needs, and waits for its sample.
func (h *house) startExample(t *testing.T, home string) {
	t.Helper()
	var log bytes.Buffer
	operator := h.shell("kubectl apply -f config/crd/bases && echo $$ >bin/example.pid && exec rolewright run --proxy-port=0 --user-metrics-bind-address=0" +
		" --metrics-bind-address=0 --health-probe-bind-address=127.0.0.1:0 --runner-root=" + home + "/runner")
	operator.Stdout, operator.Stderr = &log, &log
	operator.Env = append(slices.Clone(operator.Env), "WATCH_NAMESPACE=default")
	must.Do(t, operator.Start())
	t.Cleanup(func() {
		out, err := h.shell("kill -TERM $(cat bin/example.pid)").CombinedOutput()
		if err = errors.Join(err, operator.Wait()); err != nil {
			t.Errorf("stop the example operator: %v\n%s", err, out)
		}
		if t.Failed() {
			t.Logf("the example operator's output:\n%s", log.String())
		}
	})
	const wait = `until kubectl wait --for=condition=Established crd/memcacheds.cache.example.com 2>/dev/null; do sleep 0.2; done
kubectl apply -f config/samples/cache_v1alpha1_memcached.yaml
exec kubectl wait --for=condition=Ready --timeout=5m memcached/memcached-sample`
	if out, err := h.shell(wait).CombinedOutput(); err != nil {
		t.Fatalf("wait for the sample: %v\n%s", err, out)
	}
}

// runDocument runs the blocks of one document in one shell, so that they share variables.
func (h *house) runDocument(t *testing.T, blocks []block) {
	t.Helper()
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("set -e\nexec 3>&1\ntrap 'for p in $started; do kill -TERM -- -$p; wait $p || :; done' EXIT\n")
	var all []command
	for _, b := range blocks {
		commands := must.Get(b.commands())(t)
		for i, c := range commands {
			path := filepath.Join(dir, fmt.Sprint(len(all)))
			must.Do(t, os.WriteFile(path, []byte(c.text+"\n"), 0o600))
			all = append(all, c)
			fmt.Fprintf(&script, "echo '%s:%d' >&3\n", b.document, c.line)
			if !b.background {
				fmt.Fprintf(&script, ". %s >%s.out 2>&1 </dev/null\n", path, path)
				continue
			}
			fmt.Fprintf(&script, "setsid bash %s >%s.out 2>&1 </dev/null &\nstarted=\"$started $!\"\n", path, path)
			if i == len(commands)-1 {
				fmt.Fprintf(&script, "until ( %s ) >/dev/null 2>&1; do kill -0 $!; sleep 0.2; done\n", b.until)
			}
		}
	}
	began := time.Now()
	progress, err := h.shell(script.String()).CombinedOutput()
	t.Logf("%d commands in %s", len(all), time.Since(began).Round(100*time.Millisecond))
	for i, c := range all {
		out, readErr := os.ReadFile(filepath.Join(dir, fmt.Sprint(i, ".out")))
		if readErr != nil { // an earlier command has failed
			continue
		}
		if missing := shown(c.want, string(out)); missing != "" {
			t.Errorf("%s:%d: no line %q in the output:\n%s", blocks[0].document, c.line, missing, out)
		}
		if err != nil {
			t.Logf("$ %s\n%s", c.text, out)
		}
	}
	if err != nil {
		t.Errorf("%v; the last of these lines has failed:\n%s", err, progress)
	}
}

// copyRepository copies the repository without build products. The development tools are shared. They are newer than
// everything in the copy, so make does not build them again.
func copyRepository(t *testing.T, to string) {
	t.Helper()
	entries := must.Get(os.ReadDir(repository))(t)
	args := []string{"-a"}
	for _, e := range entries {
		if e.Name() != ".git" && e.Name() != "bin" {
			args = append(args, filepath.Join(repository, e.Name()))
		}
	}
	must.Do(t, os.MkdirAll(filepath.Join(to, "bin"), 0o755))
	if out, err := exec.Command("cp", append(args, to)...).CombinedOutput(); err != nil {
		t.Fatalf("copy the repository: %v\n%s", err, out)
	}
	if out, err := exec.Command("find", to, "-exec", "touch", "--no-dereference", "--date=@0", "{}", "+").CombinedOutput(); err != nil {
		t.Fatalf("age the copy: %v\n%s", err, out)
	}
	for _, name := range []string{"tools", "ansible"} {
		shared := must.Get(filepath.Abs(filepath.Join(repository, "bin", name)))(t)
		if _, err := os.Stat(shared); err != nil {
			continue // without tools, make fails and says so; without ansible, the system's is used
		}
		must.Do(t, os.Symlink(shared, filepath.Join(to, "bin", name)))
	}
}

// ownWorld makes a network namespace, if that is permitted, so that the documented ports are free, and a PID namespace
// that ends with this process, however it ends. It returns the prefix that runs a command in both.
func ownWorld(t *testing.T) []string {
	t.Helper()
	// The API server needs a default route, and an address that is not a loopback address.
	const script = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && ip route add default dev lo && echo up && cat"
	unshare, enter := []string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc"}, []string{"nsenter"}
	if os.Geteuid() != 0 {
		unshare, enter = append(unshare, "--map-root-user"), append(enter, "--preserve-credentials")
	}
	holder := exec.Command("unshare", append(unshare, "sh", "-c", script)...)
	in := must.Get(holder.StdinPipe())(t)
	out := must.Get(holder.StdoutPipe())(t)
	if err := holder.Start(); err != nil {
		t.Fatalf("make a network: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()    // ends everything in the namespaces
		_ = holder.Wait() // fails if namespaces are not permitted
	})
	if n, _ := out.Read(make([]byte, 3)); n == 0 {
		t.Log("no network of one's own is to be had here, without permission, or without the program ip: the ports 5050, 6789, 8443 and 8888 have to be free")
		return nil
	}
	namespaces := fmt.Sprintf("/proc/%d/ns/", holder.Process.Pid)
	enter = append(enter, "--net="+namespaces+"net", "--mount="+namespaces+"mnt", "--pid="+namespaces+"pid_for_children")
	if os.Geteuid() != 0 {
		enter = append(enter, "--user="+namespaces+"user")
	}
	return append(enter, "--")
}
