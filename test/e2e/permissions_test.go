package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
	"github.com/rolewright/rolewright/test/testenv"
)

// reader makes a service account that may get the resources in some namespaces, "" for all
// of them, and returns its token.
func reader(t *testing.T, client kubernetes.Interface, home, name, resource string, namespaces ...string) string {
	t.Helper()
	is := metav1.ObjectMeta{Name: name}
	must.Get(client.CoreV1().ServiceAccounts(home).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: is}, metav1.CreateOptions{}))(t)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"g"}, Resources: []string{resource}, Verbs: []string{"get"}}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: home, Name: name}}
	for _, namespace := range namespaces {
		if namespace != "" {
			must.Get(client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: is, Rules: rules}, metav1.CreateOptions{}))(t)
			must.Get(client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: is, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			}, metav1.CreateOptions{}))(t)
			continue
		}
		all := metav1.ObjectMeta{Name: home + "-" + name}
		must.Get(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: all, Rules: rules}, metav1.CreateOptions{}))(t)
		must.Get(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: all, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name},
		}, metav1.CreateOptions{}))(t)
		t.Cleanup(func() {
			must.Do(t, client.RbacV1().ClusterRoleBindings().Delete(context.Background(), all.Name, metav1.DeleteOptions{}))
			must.Do(t, client.RbacV1().ClusterRoles().Delete(context.Background(), all.Name, metav1.DeleteOptions{}))
		})
	}
	token := must.Get(client.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	return token.Status.Token
}

// Views and streams show a reader the runs of the objects that the API server lets it get, and nothing of others.
func TestPage_ShowsWhatItsReaderMayGet(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	one, two := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	var all []history.Run
	marks := []string{"mark-web-one", "mark-web-two", "mark-cache-one"}
	for i, mark := range marks {
		o := history.Object{Group: "g", Version: "v1", Kind: []string{"Web", "Web", "Cache"}[i], Namespace: []string{one, two, one}[i], Name: mark}
		run := runs.Run(i, o, time.Now().Add(-time.Minute))
		run.Trigger, run.Tasks[len(run.Tasks)-1].Name = mark, mark
		run = runs.Fail(run, mark)
		all = append(all, run)
	}
	o := runs.New(t, all...)
	o.Client = client
	o.Restart()
	for _, tt := range []struct {
		name, token string
		sees        map[string]string // the marks in lists and streams, by the namespace that is asked for
	}{
		{"no token", "", nil},
		{"a wrong token", "forged", nil},
		{"no rights", reader(t, client, one, "none", "webs"), nil},
		{"a reader of one namespace", reader(t, client, one, "one", "webs", one), map[string]string{one: marks[0]}},
		{"a reader of all", reader(t, client, one, "all", "webs", ""), map[string]string{"": marks[0] + marks[1], one: marks[0], two: marks[1]}},
		{"an admin", reader(t, client, one, "admin", "*", ""), map[string]string{"": strings.Join(marks, ""), one: marks[0] + marks[2], two: marks[1]}},
	} {
		o.Token = tt.token
		any := tt.sees[""] + tt.sees[one] + tt.sees[two] // a run by its ID is of one object, whatever namespace the page is of
		for _, namespace := range []string{"", one, two} {
			address := o.ServeOf(t, namespace).URL + runs.Base
			listed := tt.sees[namespace]
			check := func(what, body, may string, wants ...string) {
				t.Helper()
				for _, mark := range marks {
					sees, allowed := strings.Contains(body, mark), strings.Contains(may, mark)
					if sees && !allowed || !sees && allowed && slices.Contains(wants, mark) {
						t.Errorf("%s asks for %s of namespace %q: sees %s: %v, may see it: %v", tt.name, what, namespace, mark, sees, allowed)
					}
				}
			}
			for _, path := range []string{"", "trends?days=30"} {
				check(path, get(t, address+path), listed, marks...)
			}
			for i, run := range all {
				check("report", get(t, address+"report?id="+run.ID), any, marks[i])
				check("compare", get(t, address+"compare?a="+run.ID+"&b="+run.ID), any, marks[i])
				check("run", get(t, address+"run?id="+run.ID), any) // without its list, there is none
				check("object", get(t, address+"object?"+url.Values{"group": {"g"}, "kind": {run.Kind}, "namespace": {run.Namespace}, "name": {run.Name}}.Encode()), listed)
				check("events of a run", events(t, o, address, all, "now-"+run.ID, listed, marks[i]), listed, marks[i])
			}
			check("events", events(t, o, address, all, "", listed, marks...), listed, marks...)
		}
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	resp := must.Get(http.Get(address))(t) //nolint:bodyclose // the next line does
	defer resp.Body.Close()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// events has runs begin, twice, and reads what a stream tells of
// that: until all of what it may tell has come twice.
func events(t *testing.T, o *runs.Operator, address string, all []history.Run, id, may string, marks ...string) string {
	t.Helper()
	cursor := o.Recorder.Cursor()
	want := 0
	for range 2 {
		for _, run := range all {
			begun := history.Run{Brief: run.Brief}
			begun.ID = "now-" + run.ID
			begun.Finished, begun.Result, begun.Task = time.Time{}, "", nil
			o.Recorder.Begin(begun)
			if strings.Contains(may, run.Name) && slices.Contains(marks, run.Name) {
				want++
			}
		}
	}
	resp := must.Get(http.Get(address + "events?" + url.Values{"cursor": {strconv.FormatUint(cursor, 10)}, "run": {id}}.Encode()))(t) //nolint:bodyclose // as above
	defer resp.Body.Close()
	var said strings.Builder
	lines := bufio.NewScanner(resp.Body)
	for (want > 0 || resp.StatusCode != http.StatusOK) && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "data:") {
			want--
		}
	}
	if want > 0 {
		t.Errorf("the stream of %q ended with\n%s", address, said.String())
	}
	return said.String()
}
