package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// project writes a watches file for kinds that all have the same role, and returns its path.
func project(t *testing.T, kinds ...schema.GroupVersionKind) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "roles", "one", "tasks"), 0o700))
	var watches strings.Builder
	for _, gvk := range kinds {
		watches.WriteString("- {group: " + gvk.Group + ", version: " + gvk.Version + ", kind: " + gvk.Kind + ", role: " + dir + "/roles/one}\n")
	}
	path := filepath.Join(dir, "watches.yaml")
	must.Do(t, os.WriteFile(path, []byte(watches.String()), 0o600))
	return path
}

func TestProxyCommand_SaysWhatToDoAboutBadInput(t *testing.T) {
	cfg := testenv.Config(t)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, cfg))
	ns := testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	twin := schema.GroupVersionKind{Group: "twin.rolewright.test", Version: "v1", Kind: gvk.Kind}
	missing := schema.GroupVersionKind{Group: "missing.rolewright.test", Version: "v1", Kind: "Missing"}
	global := testenv.CRD(t, cfg, testenv.WithKind("Globe"), testenv.ClusterScoped())
	next := schema.GroupVersionKind{Group: gvk.Group, Version: "v2", Kind: gvk.Kind}
	watchesFile, twins := project(t, gvk, missing, global), project(t, gvk, next, twin)
	createObject(t, gvk, ns, "it")
	taken := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0"))(t)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	existing := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(existing, []byte("mine"), 0o600))
	tests := []struct {
		name   string
		code   int
		args   []string
		stderr string // part of the text
	}{
		{"no owner", exitUsage, nil, `--owner "": give the object as KIND/NAME, such as Memcached/sample`},
		{"no name", exitUsage, []string{"--owner=Widget"}, `--owner "Widget": give the object as KIND/NAME`},
		{"empty name", exitUsage, []string{"--owner=Widget/"}, `--owner "Widget/": give the object as KIND/NAME`},
		{"no watches file", exitUsage, []string{"--owner=Widget/it", "--watches-file=nowhere.yaml"}, "nowhere.yaml"},
		{"kind that is not watched", exitUsage, []string{"--owner=Gadget/it"}, `there is no watch of "Gadget"; there are watches of Widget.` + gvk.Group + ", Missing.missing.rolewright.test, Globe." + global.Group},
		{"kind of two groups", exitUsage, []string{"--owner=widget/it", "--watches-file=" + twins}, "is a kind of several groups: give KIND.GROUP/NAME"},
		{"kind that is not installed", exitFailed, []string{"--owner=Missing/it"}, "the cluster has no kind missing.rolewright.test/v1, Kind=Missing: install its CustomResourceDefinition"},
		{"missing object", exitNothing, []string{"--owner=Widget/other"}, "there is no Widget " + ns + "/other: create it, or set its namespace with --namespace"},
		{"missing object in no namespace", exitNothing, []string{"--owner=Globe/other"}, "there is no Globe other: create it"},
		{"file that exists", exitFailed, []string{"--owner=Widget/it", "--kubeconfig=" + existing}, existing + " exists; name another file, or remove it"},
		{"directory that does not exist", exitFailed, []string{"--owner=Widget/it", "--kubeconfig=/nowhere/kubeconfig"}, "--kubeconfig: open /nowhere/kubeconfig: no such file or directory"},
		{"port in use", exitFailed, []string{"--owner=Widget/it", "--proxy-port=" + port}, "choose another port with --proxy-port"},
		{"argument", exitUsage, []string{"Widget/it"}, `unexpected argument "Widget/it"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := invoke(append([]string{"rolewright", "proxy", "--watches-file=" + watchesFile, "--namespace=" + ns}, tt.args...)...)
			if code != tt.code || stdout != "" {
				t.Errorf("exit code %d, output %q; want %d and no output", code, stdout, tt.code)
			}
			if said := stderr[max(0, strings.Index(stderr, "Error: ")):]; !strings.HasPrefix(said, "Error: ") || !strings.Contains(said, tt.stderr) {
				t.Errorf("stderr = %q, want an error with %q", stderr, tt.stderr)
			}
		})
	}
	if data, err := os.ReadFile(existing); err != nil || string(data) != "mine" {
		t.Errorf("the file that was there: %q, %v", data, err)
	}
}

func TestProxyCommand_SaysWhatIsWrongWithTheWayToTheServer(t *testing.T) {
	cfg := testenv.Config(t)
	stranger := rest.AnonymousClientConfig(cfg)
	stranger.BearerToken = "unknown"
	tests := []struct{ name, kubeconfig, stderr string }{
		{"no file", filepath.Join(t.TempDir(), "none"), "make KUBECONFIG name an existing file, or unset it"},
		{"unknown token", testenv.Kubeconfig(t, stranger), "the server refuses these credentials: renew them"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.kubeconfig)
			gvk := schema.GroupVersionKind{Group: "any.rolewright.test", Version: "v1", Kind: "Any"}
			code, stdout, stderr := invoke("rolewright", "proxy", "--owner=Any/it", "--watches-file="+project(t, gvk))
			if code != exitUnreachable || stdout != "" || !strings.Contains(stderr, "KUBECONFIG="+tt.kubeconfig) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d, output %q, stderr %q; want %d and %q", code, stdout, stderr, exitUnreachable, tt.stderr)
			}
		})
	}
}

// createObject makes an object without a spec.
func createObject(t *testing.T, gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	obj.SetName(name)
	c, err := dynamic.NewForConfig(testenv.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	objects := c.Resource(gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s"))
	if namespace == "" {
		obj, err = objects.Create(t.Context(), obj, metav1.CreateOptions{})
	} else {
		obj, err = objects.Namespace(namespace).Create(t.Context(), obj, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestProxyCommand_PrintsAKubeconfigThatWorksUntilTheEnd uses an owner without a namespace, and one in the namespace of
// the kubeconfig's context, to which its watch confines runs.
func TestProxyCommand_PrintsAKubeconfigThatWorksUntilTheEnd(t *testing.T) {
	cfg := testenv.Config(t)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, cfg))
	ns := testenv.Namespace(t, cfg)
	namespaced := testenv.CRD(t, cfg)
	global := testenv.CRD(t, cfg, testenv.WithKind("Globe"), testenv.ClusterScoped())
	watchesFile := project(t, namespaced, global)
	text := must.Get(os.ReadFile(watchesFile))(t)
	text = bytes.Replace(text, []byte("kind: "+namespaced.Kind), []byte("ownNamespaceOnly: true, kind: "+namespaced.Kind), 1)
	must.Do(t, os.WriteFile(watchesFile, text, 0o600))
	tests := []struct {
		owner     string
		gvk       schema.GroupVersionKind
		namespace string
	}{
		{"widget/it", namespaced, ns},
		{"Globe." + global.Group + "/it", global, ""},
	}
	for _, tt := range tests {
		t.Run(tt.owner, func(t *testing.T) {
			owner := createObject(t, tt.gvk, tt.namespace, "it")
			out, in := io.Pipe()
			signals := make(chan os.Signal, 1)
			ended := make(chan int, 1)
			var stderr lockedBuffer
			go func() {
				ended <- execute(signals, []string{"rolewright", "proxy", "--owner=" + tt.owner, "--namespace=" + ns, "--watches-file=" + watchesFile}, in, &stderr)
				_ = in.Close() // a pipe's end cannot fail
			}()
			printed := make([]byte, 64<<10)
			n, err := out.Read(printed) // the kubeconfig is one write
			if err != nil {
				t.Fatalf("read the kubeconfig: %v; stderr:\n%s", err, stderr.String())
			}
			way, err := clientcmd.RESTConfigFromKubeConfig(printed[:n])
			if err != nil {
				t.Fatalf("the output is not a kubeconfig: %v\n%s", err, printed[:n])
			}
			c := must.Get(dynamic.NewForConfig(way))(t)
			configMaps := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
			child := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "child-"},
			}}
			if child, err = configMaps.Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
				t.Fatalf("create a child: %v", err)
			}
			want := []metav1.OwnerReference{{
				APIVersion: tt.gvk.GroupVersion().String(), Kind: tt.gvk.Kind, Name: "it", UID: owner.GetUID(),
			}}
			must.Be(t, "owner of the child", want, child.GetOwnerReferences())
			namespaces := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
			if _, err := namespaces.Get(t.Context(), ns, metav1.GetOptions{}); (err == nil) != (tt.namespace == "") {
				t.Errorf("read the namespace's own object: %v", err)
			}
			signals <- os.Interrupt
			if code := <-ended; code != exitOK {
				t.Errorf("exit code = %d; stderr:\n%s", code, stderr.String())
			}
			if _, err := configMaps.List(context.WithoutCancel(t.Context()), metav1.ListOptions{}); err == nil {
				t.Error("the kubeconfig still works after the end")
			}
		})
	}
}
