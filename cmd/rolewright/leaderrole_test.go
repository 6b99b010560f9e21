package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestLeaderElection_UsesAllThatItsRoleGrantsAndNoMore(t *testing.T) {
	requireAnsible(t)
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	data := must.Get(os.ReadFile(filepath.Join("..", "..", "config", "rbac", "leader_election_role.yaml")))(t)
	var role rbacv1.Role
	must.Do(t, yaml.UnmarshalStrict(data, &role))
	user := testenv.User(t, cfg, append(role.Rules, rbacv1.PolicyRule{
		APIGroups: []string{gvk.Group}, Resources: []string{"widgets", "widgets/status"}, Verbs: []string{"get", "list", "watch", "patch"},
	}))
	client := kubernetes.NewForConfigOrDie(user)
	me := must.Get(client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	p := startRun(t, []string{"KUBECONFIG=" + testenv.Kubeconfig(t, user)}, "--watches-file="+project(t, gvk), "--executor=runner",
		"--leader-elect", "--leader-election-id=it", "--leader-election-namespace="+ns,
		"--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=30m") // long enough for the slowest test machine
	asked := func() (verbs []string) {
		name := me.Status.UserInfo.Username
		for _, e := range testenv.AuditEvents(t, name, func(e testenv.AuditEvent) bool { return e.User.Username == name }) {
			if e.ResponseStatus.Code == http.StatusForbidden {
				t.Errorf("refused: %s %s", e.Verb, e.RequestURI)
			}
			if e.ObjectRef.Resource == "leases" && !slices.Contains(verbs, e.Verb) {
				verbs = append(verbs, e.Verb)
			}
		}
		return verbs
	}
	testenv.Eventually(t, "the Lease renewed", func(context.Context) error {
		if verbs := asked(); !slices.Contains(verbs, "update") {
			return fmt.Errorf("asked for %q", verbs)
		}
		return nil
	})
	must.Do(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var granted []string
	for _, rule := range role.Rules {
		if strings.Join(rule.Resources, " ") != "leases" {
			t.Errorf("the role grants %v too", rule.Resources)
		}
		granted = append(granted, rule.Verbs...)
	}
	used := asked()
	slices.Sort(granted)
	slices.Sort(used)
	if diff := cmp.Diff(granted, used); diff != "" {
		t.Errorf("verbs (-granted +used)\n%s", diff)
	}
}
