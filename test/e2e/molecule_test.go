package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The scenarios install the example for the whole cluster and remove it, so they have their own cluster. Its Pods run
// nothing: instead of the operator's Pod there is a process with the arguments, the environment and the service account
// that the Deployment specifies.

func TestMolecule_ScenariosInOrder_OperatorBesideItsPod(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	cfg := testenv.Own(t, "--kwok")
	project := projectCopy(t)
	watchPlaybook(t, project) // TestExampleOperator_MoleculeOrder has the role
	env := append(cleanEnvironment(), "KUBECONFIG="+testenv.Kubeconfig(t, cfg), "KUSTOMIZE_PATH="+kustomize(t))

	t.Run("default", func(t *testing.T) {
		newScenario(t, project, "default", append(slices.Clip(env), "OPERATOR_IMAGE=registry.example.com/operator:v1")).
			testBesidePod(cfg, "registry.example.com/operator:v1")
	})
	if os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") == "" {
		return // the rest is much the same; make test-all has it
	}
	// This part is no proof that docker and kind do what is wanted of them.
	t.Run("kind, with stand-ins for docker and kind", func(t *testing.T) {
		t.Log("NOT SHOWN: an image is neither built nor loaded, and no cluster is made; scripts answer for docker and kind")
		path := "PATH=" + standIns(t) + ":" + os.Getenv("PATH")
		env := append(slices.Clip(env), path, "KIND_KUBECONFIG="+testenv.Kubeconfig(t, cfg))
		newScenario(t, project, "kind", env).testBesidePod(cfg, "testing-operator")
	})
}

// testBesidePod executes a scenario that installs the operator from an image.
func (s *scenario) testBesidePod(cfg *rest.Config, image string) {
	s.t.Helper()
	const namespace = "osdk-test"
	s.test(func(step string) {
		switch step {
		case "prepare":
			if s.name == "default" { // for kind, it is the same file
				s.play("prepare") // may be repeated
			}
		case "converge":
			besidePod(s.t, cfg, namespace, image, s.project)
		}
	})
	s.play("destroy")
}

// besidePod starts the operator as the kubelet would for the Deployment.
func besidePod(t *testing.T, cfg *rest.Config, namespace, image, project string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cfg)
	deployment := theDeployment(t, client, namespace)
	pod := deployment.Spec.Template.Spec
	manager := pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "manager" })]
	if manager.Image != image {
		t.Errorf("the Deployment's image is %s, want %s", manager.Image, image)
	}
	token := must.Get(client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), pod.ServiceAccountName,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	account := rest.AnonymousClientConfig(cfg)
	account.BearerToken = token.Status.Token

	s := &stage{t: t, cfg: account, namespace: namespace, dir: project, root: filepath.Join(t.TempDir(), "runner")}
	s.env = append(cleanEnvironment(), "KUBECONFIG="+testenv.Kubeconfig(t, account))
	mounted := mounts(t, manager.VolumeMounts)
	for _, v := range manager.Env {
		switch {
		case v.ValueFrom == nil:
			s.env = append(s.env, v.Name+"="+mounted(v.Value))
		case v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			s.env = append(s.env, v.Name+"="+namespace)
		case v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.name":
			s.env = append(s.env, v.Name+"="+deployment.Name+"-0")
		default:
			t.Fatalf("the variable %s of the Deployment has a source that this test does not know: %v", v.Name, v.ValueFrom)
		}
	}
	var args []string
	for _, arg := range manager.Args {
		name, value, _ := strings.Cut(arg, "=")
		args = append(args, strings.TrimSuffix(name+"="+mounted(value), "="))
	}
	o := s.launchWith(func(o *operator) {
		own := slices.Clone(o.cmd.Args[2 : len(o.cmd.Args)-len(args)]) // addresses that are free here come last, and win
		// In a Pod it is a file that names the namespace.
		o.cmd.Args = append(o.cmd.Args, append(append(own, longLease()...), "--leader-election-namespace="+namespace)...)
	}, args...)
	testenv.Eventually(t, "the operator to be ready", func(ctx context.Context) error {
		status, body, err := fetch(ctx, o.health+"/readyz?verbose")
		if err == nil && status != 200 {
			err = fmt.Errorf("readyz answers %d: %s", status, body)
		}
		if o.hasEnded() {
			t.Fatalf("the operator has ended with exit code %d", o.cmd.ProcessState.ExitCode())
		}
		return err
	})
}

// theDeployment returns the operator's Deployment, whatever its name.
func theDeployment(t *testing.T, client kubernetes.Interface, namespace string) appsv1.Deployment {
	t.Helper()
	list, err := client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "control-plane=controller-manager"})
	if err == nil && len(list.Items) != 1 {
		err = errors.New("not one")
	}
	if err != nil {
		t.Fatalf("find the operator's Deployment: %v", err)
	}
	return list.Items[0]
}

// mounts creates a directory for each volume, and returns a function that translates a path in the container into one
// here.
func mounts(t *testing.T, volumes []corev1.VolumeMount) func(string) string {
	t.Helper()
	dirs := map[string]string{}
	for _, v := range volumes {
		dirs[v.MountPath] = t.TempDir()
	}
	return func(path string) string {
		for at, dir := range dirs {
			if rest, inside := strings.CutPrefix(path, at); inside && (rest == "" || rest[0] == '/') {
				return dir + rest
			}
		}
		return path
	}
}

// projectCopy copies the files that the scenarios need, because prepare edits a kustomization.
func projectCopy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	must.Do(t, os.Mkdir(dir, 0o700))
	args := []string{"-a"}
	for _, name := range []string{"Dockerfile", "config", "molecule", "playbooks", "requirements.yml", "roles", "watches.yaml"} {
		args = append(args, absolute(t, name))
	}
	if out, err := exec.Command("cp", append(args, dir)...).CombinedOutput(); err != nil {
		t.Fatalf("copy the project: %v\n%s", err, out)
	}
	return dir
}

// watchPlaybook has the project watch the playbook that has the role in place of the role.
func watchPlaybook(t *testing.T, project string) {
	t.Helper()
	path := filepath.Join(project, "watches.yaml")
	data := must.Get(os.ReadFile(path))(t)
	const role = "\n  role: memcached\n"
	if !strings.Contains(string(data), role) {
		t.Fatalf("watches.yaml has no line %q", role)
	}
	must.Do(t, os.WriteFile(path, []byte(strings.Replace(string(data), role, "\n  playbook: playbooks/memcached.yml\n", 1)), 0o600))
}

// kustomize is the path of the program.
func kustomize(t *testing.T) string {
	t.Helper()
	path := absolute(t, "bin", "tools", "kustomize")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath("kustomize")
	if err != nil {
		t.Fatalf("%v: run `make client-tools`", err)
	}
	return path
}

// standIns creates a docker and a kind that know the commands of the scenario, and nothing else.
func standIns(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const docker = `#!/bin/sh
[ "$1 $2 $3" = "build --tag testing-operator" ] && [ -f "$4/Dockerfile" ]
`
	const kind = `#!/bin/sh
cd "${0%/*}" || exit
case "$1 $2 $3 $4" in
"create cluster --name osdk-test") cp "$KIND_KUBECONFIG" "$6" ;;
"delete cluster --name osdk-test") rm -f "$6" ;;
"load docker-image --name osdk-test")
	if [ -e loaded ]; then
		echo "Image: \"$5\" with ID \"sha256:0\" found to be already present on all nodes." >&2
	else
		echo "Image: \"$5\" with ID \"sha256:0\" not yet present on node \"osdk-test-control-plane\", loading..." >&2
		touch loaded
	fi ;;
*) echo "unknown command: $*" >&2; exit 1 ;;
esac
`
	for name, script := range map[string]string{"docker": docker, "kind": kind} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	return dir
}
