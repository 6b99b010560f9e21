package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
	"github.com/rolewright/rolewright/test/testenv"
)

// The numbers of cobra's shell directives, which end the output of __complete.
const (
	shellsOwn = ":0"
	noFiles   = ":4"
	byEnding  = ":8"
	onlyDirs  = ":16"
	keptOrder = ":36" // includes noFiles
)

// ticket makes the directory of a run that ended that many minutes ago.
func ticket(t *testing.T, root, id, object string, minutes int) {
	t.Helper()
	dir := filepath.Join(root, ".runs", "someone", id)
	must.Do(t, os.MkdirAll(dir, 0o700))
	file := filepath.Join(dir, runstore.TicketFile)
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, `{"Run": "%s", "Kind": "Web", "Namespace": "shop", "Name": "%s"}`, id, object), 0o600))
	then := time.Now().Add(-time.Duration(minutes) * time.Minute)
	must.Do(t, os.Chtimes(file, then, then))
}

func TestCompletion_OffersWhatFits(t *testing.T) {
	scaffolded(t)
	t.Setenv("KUBECONFIG", "nowhere")
	const early, late = "11111111-1111-4111-8111-111111111111", "12222222-2222-4222-8222-222222222222"
	ticket(t, "root", early, "a", 2)
	ticket(t, "root", late, `b\u001b[2J`, 1)
	for args, want := range map[string][]string{
		"create ":                            {"api\tAdd a kind: its role or chart, CRD, sample and permissions, and its entry in watches.yaml", noFiles},
		"create api --role ":                 {"web", noFiles},
		"create api --crd-from ":             {"argspec", "defaults", "none", noFiles},
		"create api --playbook ":             {"yml", "yaml", byEnding},
		"lint ":                              {noFiles},
		"lint -o ":                           {"text", "json", "sarif", "github", noFiles},
		"validate ":                          {"yaml", "yml", byEnding},
		"validate a.yaml ":                   {noFiles},
		"test a.yaml ":                       {"yaml", "yml", byEnding},
		"once --filename ":                   {"yaml", "yml", "json", byEnding},
		"run --executor ":                    {"auto", "warm", "runner", "job", noFiles},
		"generate schema ":                   {"Web", noFiles},
		"generate argspec ":                  {"web", noFiles},
		"generate argspec web ":              {noFiles},
		"generate health-lua ":               {"Web", noFiles},
		"generate health-lua Web ":           {noFiles},
		"generate rbac --output ":            {"yaml", "yml", byEnding},
		"generate chart --output ":           {onlyDirs},
		"replay --runner-root root ":         {late + "\tWeb shop/b", early + "\tWeb shop/a", keptOrder},
		"replay --runner-root root 11":       {early + "\tWeb shop/a", keptOrder},
		"replay --runner-root root *":        {keptOrder},
		"replay --runner-root root /t":       {onlyDirs},
		"cluster exec -- ":                   {shellsOwn},
		"generate rbac --namespace ":         {noFiles}, // there is no cluster
		"doctor --as system:serviceaccount:": {noFiles},
	} {
		words := append([]string{"rolewright", "__complete"}, strings.Split(args, " ")...)
		code, stdout, stderr := invoke(words...)
		got := strings.Split(strings.TrimSpace(stdout), "\n")
		if code != 0 || !slices.Equal(got, want) || strings.Contains(stderr, "rror") {
			t.Errorf("%q: code %d, %q, want %q\n%s", args, code, got, want, stderr)
		}
	}
	if _, stdout, _ := invoke("rolewright", "__complete", "explain", "RW10"); !strings.Contains(stdout, "\nRW101\t") {
		t.Errorf("explain RW10: %q", stdout)
	}
}

func TestCompletion_AsksTheCluster(t *testing.T) {
	cfg := testenv.Config(t)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, cfg))
	gvk := testenv.CRD(t, cfg, testenv.WithKind("Offered"))
	namespace := testenv.Namespace(t, cfg)
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	obj.SetName("it")
	must.Get(must.Get(dynamic.NewForConfig(cfg))(t).Resource(gvk.GroupVersion().WithResource("offereds")).Namespace(namespace).
		Create(t.Context(), obj, metav1.CreateOptions{}))(t)
	for args, want := range map[string]string{
		"wait ":                              "offered/",
		"wait -n " + namespace + " offered/": "offered/it",
		"get objects ":                       "offered",
		"get objects offered -n " + namespace + " ": "it",
		"generate rbac --namespace ":                "kube-system",
		"generate rbac --namespace default,":        "default,kube-system",
	} {
		words := append([]string{"rolewright", "__complete"}, strings.Split(args, " ")...)
		testenv.Eventually(t, "an answer in time", func(context.Context) error {
			if _, stdout, stderr := invoke(words...); !slices.Contains(strings.Split(stdout, "\n"), want) {
				return fmt.Errorf("%q: %q, want %q\n%s", args, stdout, want, stderr)
			}
			return nil
		})
	}
}

// An operator offers its runs to users who give its address. If the line names an object, only the runs of this object are
// offered.
func TestCompletion_AsksTheOperator(t *testing.T) {
	scaffolded(t)
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: https://127.0.0.1:1}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
	must.Do(t, os.WriteFile("kubeconfig", []byte(kubeconfig), 0o600))
	t.Setenv("KUBECONFIG", "kubeconfig")
	now := time.Now()
	of := func(name string) history.Object {
		return history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: "shop", Name: name}
	}
	first, second := runs.Run(1, of("a"), now.Add(-time.Hour)), runs.Fail(runs.Run(2, of("b\x1b[2J"), now), "no")
	o := runs.New(t, first, second)
	a, b := first.ID+"\tWeb shop/a RunSucceeded", second.ID+"\tWeb shop/b TaskFailed"
	for args, want := range map[string][]string{
		"describe run FLAGS ":                       {b, a, keptOrder},
		"describe run FLAGS " + first.ID[:6]:        {a, keptOrder},
		"describe run FLAGS " + first.ID + " ":      {noFiles},
		"describe run ":                             {keptOrder},
		"report FLAGS ":                             {b, a, keptOrder},
		"diff FLAGS " + second.ID[:6] + " ":         {a, keptOrder},
		"diff FLAGS " + first.ID + " x ":            {noFiles},
		"logs FLAGS web/a --run ":                   {a, keptOrder},
		"logs FLAGS --run ":                         {b, a, keptOrder},
		"describe run --server http://127.0.0.1:1 ": {keptOrder},
	} {
		words := strings.Split(strings.ReplaceAll(args, "FLAGS", "-n shop --server "+o.URL()), " ")
		code, stdout, stderr := invoke(append([]string{"rolewright", "__complete"}, words...)...)
		if got := strings.Split(strings.TrimSpace(stdout), "\n"); code != 0 || !slices.Equal(got, want) {
			t.Errorf("%q: code %d, %q, want %q\n%s", args, code, got, want, stderr)
		}
	}
}

// The scripts come from cobra; this test checks that shells can read them.
func TestCompletion_ShellsReadTheScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			code, script, stderr := invoke("rolewright", "completion", shell)
			if code != 0 {
				t.Fatalf("code %d: %s", code, stderr)
			}
			cmd := exec.CommandContext(t.Context(), program, "-n")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
