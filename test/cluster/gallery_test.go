//go:build e2e

package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// TestGallery_Memcached deploys an example, copied as examples/README.md says. Its servers are real.
func TestGallery_Memcached(t *testing.T) {
	t.Parallel() // after TestExample, which installs a CRD with that name
	s := deploy(t, "gallery/memcached", "memcached-operator", "gallery-memcached:v0.0.1")
	s.kubectl(t, "apply", "--kustomize", "config/samples")
	s.kubectl(t, "wait", "--for=condition=Ready", "--timeout=600s", "memcached/sessions")
	const selector = "app.kubernetes.io/instance=sessions"
	servers(t, s, selector, 3)
	s.kubectl(t, "patch", "memcached/sessions", "--type=merge", `--patch={"spec": {"size": 2}}`)
	servers(t, s, selector, 2)
	s.kubectl(t, "delete", "--kustomize", "config/samples")
	s.eventually(t, "its servers to go", s.equals("", "get", "deployments,services,pods", "--selector="+selector, "--output=name"))
	s.kubectl(t, "delete", "--kustomize", "config/default")
}

// TestGallery_Chart deploys the example of a chart, with the image for charts.
func TestGallery_Chart(t *testing.T) {
	t.Parallel()
	image := readImage(t, filepath.Join(repository, "bin/image/rolewright-charts.tar"))
	config := image.config.Config
	if config.User != "1001:0" || config.WorkingDir != "/opt/helm" || image.files["usr/local/bin/rolewright-helm"] == nil ||
		!slices.Equal(config.Entrypoint, []string{"/usr/local/bin/helm-operator", "run", "--watches-file=./watches.yaml"}) {
		t.Errorf("the image begins as %+v", config)
	}
	for name := range image.files {
		if strings.Contains(name, "bin/python3") || strings.Contains(name, "bin/ansible") {
			t.Errorf("the image has %s", name)
		}
	}
	s := deploy(t, "gallery/chart", "microservice-operator", "gallery-chart:v0.0.1")
	s.kubectl(t, "create", "namespace", "shops")
	s.apply(t, `{"apiVersion": "chart.example.com/v1", "kind": "Microservice", "metadata": {"name": "shop", "namespace": "shops"},
		"spec": {"image": "memcached:1.6", "port": 11211, "replicas": 1}}`)
	s.kubectl(t, "wait", "--namespace=shops", "--for=condition=Ready", "--timeout=600s", "microservice/shop")
	ready := []string{"get", "deployment/shop", "--namespace=shops", "--output=jsonpath={.status.readyReplicas}"}
	s.eventually(t, "its Pod", s.equals("1", ready...))
	s.kubectl(t, "patch", "microservice/shop", "--namespace=shops", "--type=merge", `--patch={"spec": {"replicas": 2}}`)
	s.eventually(t, "its Pods", s.equals("2", ready...))
	s.kubectl(t, "delete", "--namespace=shops", "--timeout=600s", "microservice/shop")
	s.eventually(t, "its objects to go", s.equals("", "get", "deployments,pods,secrets", "--namespace=shops", "--output=name"))
	s.kubectl(t, "delete", "--kustomize", "config/default")
}

const members = "--selector=app.kubernetes.io/instance=keys"

// TestGallery_LongStore deploys the example of a clustered store. Its members are real: what is written stays through all
// changes, and two members are never away at the same time.
func TestGallery_LongStore(t *testing.T) {
	t.Parallel()
	s := deploy(t, "gallery/store", "store-operator", "gallery-store:v0.0.1")
	answerNames(t, s, "keys")
	for i := range 5 + 2 { // members that join again get new ones
		volume := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "store-%d"}, "spec": {
			"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": %q, "type": "DirectoryOrCreate"}}}`, i, t.TempDir())
		s.apply(t, volume)
	}
	s.kubectl(t, "apply", "--kustomize", "config/samples")
	running(t, s, 3, "v3.6.8")
	say(t, s, "kv/put", map[string]string{"key": encoded("kept"), "value": encoded("all along")})
	watch := watchMembers(t, s)
	change := func(patch string, size int, version string) {
		t.Helper()
		s.kubectl(t, "patch", "store/keys", "--type=merge", "--patch="+patch)
		running(t, s, size, version)
		if said := say(t, s, "kv/range", map[string]string{"key": encoded("kept")}); !strings.Contains(said, encoded("all along")) {
			t.Errorf("after %s the store has lost what was written: %s", patch, said)
		}
		if list := say(t, s, "cluster/member/list", nil); strings.Count(list, `"clientURLs"`) != size {
			t.Errorf("after %s, etcd has other members than %d: %s", patch, size, list)
		}
	}
	change(`{"spec": {"size": 5}}`, 5, "v3.6.8")
	change(`{"spec": {"size": 3}}`, 3, "v3.6.8")
	// There is no such version. The change costs one member, and the next version begins with that member.
	s.kubectl(t, "patch", "store/keys", "--type=merge", `--patch={"spec": {"version": "v0"}}`)
	s.eventually(t, "a member that does not start", s.equals("keys-2 false", "get", "pods", members, "--field-selector=status.phase=Pending",
		"--output=jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].ready}{end}"))
	change(`{"spec": {"version": "v3.6.9"}}`, 3, "v3.6.9")
	watch()
	s.kubectl(t, "delete", "--kustomize", "config/samples")
	s.eventually(t, "its members to go", s.equals("", "get", "statefulsets,pods,persistentvolumeclaims", members, "--output=name"))
	s.kubectl(t, "delete", "--kustomize", "config/default")
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// running waits until the store has this many members of a version.
func running(t *testing.T, s *shell, size int, version string) {
	t.Helper()
	for _, goal := range []string{fmt.Sprintf("members}=%d", size), "version}=" + version, "phase}=Running"} {
		s.kubectl(t, "wait", "store/keys", "--for=jsonpath={.status."+goal, "--timeout=10m")
	}
	s.kubectl(t, "wait", "store/keys", "--for=condition=Ready", "--timeout=600s")
	if images := strings.Fields(s.ask(t, "get", "pods", members, "--output=jsonpath={.items[*].spec.containers[*].image}")); len(images) != size ||
		slices.ContainsFunc(images, func(image string) bool { return image != "etcd:"+version }) {
		t.Errorf("the Pods run %v, want %d with %s", images, size, version)
	}
}

// say sends a request to the first member, in etcd's own API.
func say(t *testing.T, s *shell, request string, body any) string {
	t.Helper()
	address := net.JoinHostPort(s.ask(t, "get", "pod/keys-0", "--output=jsonpath={.status.podIP}"), "2379")
	text := must.Get(json.Marshal(body))(t)
	if body == nil {
		text = []byte("{}")
	}
	response, err := http.Post("http://"+address+"/v3/"+request, "application/json", bytes.NewReader(text))
	must.Do(t, err)
	defer response.Body.Close()
	var said bytes.Buffer
	must.Get(said.ReadFrom(response.Body))(t)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", request, response.Status, &said)
	}
	return said.String()
}

// watchMembers counts, until it is called, the members that were removed and have not been ready since. There must never
// be two. A member that is ready late, because the machine is busy, was not removed.
func watchMembers(t *testing.T, s *shell) (end func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	looks, were := 0, map[string]bool{}
	go func() {
		defer close(ended)
		for {
			out, err := s.run("get", "statefulsets,pods", members, "--output=json")
			if err == nil {
				looks++
				if away := membersAway(out, were); len(away) > 1 {
					t.Errorf("these members are away at a time: %v", away)
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		if looks < 10 {
			t.Errorf("the members were looked at %d times", looks)
		}
	}
}

// membersAway returns the members, in a list of a StatefulSet and Pods, that are missing, about to go, or not ready yet;
// were has the UIDs of Pods that have been ready.
func membersAway(list string, were map[string]bool) []string {
	var found struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name, UID, DeletionTimestamp string }
			Spec     struct{ Replicas int }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(list), &found); err != nil {
		return []string{err.Error(), list}
	}
	var wanted, there []string
	for _, item := range found.Items {
		for i := range item.Spec.Replicas {
			wanted = append(wanted, fmt.Sprintf("%s-%d", item.Metadata.Name, i))
		}
		for _, c := range item.Status.Conditions {
			were[item.Metadata.UID] = were[item.Metadata.UID] || c.Type == "Ready" && c.Status == "True"
		}
		if item.Kind == "Pod" && item.Metadata.DeletionTimestamp == "" && were[item.Metadata.UID] {
			there = append(there, item.Metadata.Name)
		}
	}
	return slices.DeleteFunc(wanted, func(name string) bool { return slices.Contains(there, name) })
}
