package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/act"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/operatorpage"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
	"github.com/rolewright/rolewright/test/testenv"
)

// reader creates a service account that may get the resources in some namespaces ("" for all of them), and returns its
// token.
func reader(t *testing.T, client kubernetes.Interface, home, name, resource string, namespaces ...string) string {
	t.Helper()
	return readerBy(t, client, home, name, rbacv1.PolicyRule{APIGroups: []string{"g"}, Resources: []string{resource}, Verbs: []string{"get"}}, namespaces...)
}

// readerBy is reader with another rule.
func readerBy(t *testing.T, client kubernetes.Interface, home, name string, rule rbacv1.PolicyRule, namespaces ...string) string {
	t.Helper()
	is := metav1.ObjectMeta{Name: name}
	must.Get(client.CoreV1().ServiceAccounts(home).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: is}, metav1.CreateOptions{}))(t)
	rules := []rbacv1.PolicyRule{rule}
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
	for _, namespace := range namespaces {
		awaitAllowed(t, client, "system:serviceaccount:"+home+":"+name, rule, namespace)
	}
	token := must.Get(client.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	return token.Status.Token
}

// awaitAllowed waits until the API server, which reads roles from a cache, allows user what rule says.
func awaitAllowed(t *testing.T, client kubernetes.Interface, user string, rule rbacv1.PolicyRule, namespace string) {
	t.Helper()
	for _, verb := range rule.Verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: verb, Namespace: namespace},
		}}
		testenv.Eventually(t, user+" may "+verb, func(ctx context.Context) error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = errors.New("not allowed yet")
			}
			return err
		})
	}
}

// Views and streams show a reader the runs of those objects that the API server lets it get, and nothing of others: on
// the page of rolewright ui, and on that of the operator.
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
		sees        map[string]string // the marks in lists and streams, by requested namespace
	}{
		{"no token", "", nil},
		{"a wrong token", "forged", nil},
		{"no rights", reader(t, client, one, "none", "webs"), nil},
		{"a reader of one namespace", reader(t, client, one, "one", "webs", one), map[string]string{one: marks[0]}},
		{"a reader of all", reader(t, client, one, "all", "webs", ""), map[string]string{"": marks[0] + marks[1], one: marks[0], two: marks[1]}},
		{"an admin", reader(t, client, one, "admin", "*", ""), map[string]string{"": strings.Join(marks, ""), one: marks[0] + marks[2], two: marks[1]}},
	} {
		o.Token = tt.token
		any := tt.sees[""] + tt.sees[one] + tt.sees[two] // a run's ID belongs to one object, whatever namespace the page shows
		for _, namespace := range []string{"", one, two} {
			listed := tt.sees[namespace]
			for _, address := range []string{o.ServeOf(t, namespace).URL + runs.Base, operated(t, cfg, o, namespace)} {
				check := func(what, body, may string, wants ...string) {
					t.Helper()
					for _, mark := range marks {
						sees, allowed := strings.Contains(body, mark), strings.Contains(may, mark)
						if sees && !allowed || !sees && allowed && slices.Contains(wants, mark) {
							t.Errorf("%s asks for %s of namespace %q at %s: sees %s: %v, may see it: %v", tt.name, what, namespace, address, mark, sees, allowed)
						}
					}
				}
				for _, path := range []string{"", "trends?days=30"} {
					check(path, getAs(t, tt.token, address+path), listed, marks...)
				}
				for i, run := range all {
					check("report", getAs(t, tt.token, address+"report?id="+run.ID), any, marks[i])
					check("compare", getAs(t, tt.token, address+"compare?a="+run.ID+"&b="+run.ID), any, marks[i])
					check("run", getAs(t, tt.token, address+"run?id="+run.ID), any) // without permission to list, there is none
					check("object", getAs(t, tt.token, address+"object?"+url.Values{"group": {"g"}, "kind": {run.Kind}, "namespace": {run.Namespace}, "name": {run.Name}}.Encode()), listed)
					check("events of a run", events(t, o, tt.token, address, all, "now-"+run.ID, listed, marks[i]), listed, marks[i])
				}
				check("events", events(t, o, tt.token, address, all, "", listed, marks...), listed, marks...)
			}
		}
	}
}

// operated returns the address of the page that the operator serves, for one namespace or all.
func operated(t *testing.T, cfg *rest.Config, o *runs.Operator, namespace string) string {
	t.Helper()
	server := runs.ServeBy(t, func(host string) http.Handler {
		return operatorpage.New(operatorpage.Options{
			API: o.API(), Address: o.URL(), Cluster: cfg, Kinds: runs.Kinds, Objects: act.Of, Hosts: []string{host}, Actions: true, Log: logr.Discard(),
		})
	})
	if namespace != "" {
		return server.URL + operatorpage.Namespaces + namespace + "/"
	}
	return server.URL + operatorpage.Base
}

func get(t *testing.T, address string) string {
	t.Helper()
	return getAs(t, "", address)
}

func getAs(t *testing.T, token, address string) string {
	t.Helper()
	resp := request(t, token, http.MethodGet, address, "")
	defer resp.Body.Close()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// request sends a request like a page, with or without a token. It follows no redirect.
func request(t *testing.T, token, method, address, form string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for a stream that reports less than expected
	t.Cleanup(cancel)
	r := must.Get(http.NewRequestWithContext(ctx, method, address, strings.NewReader(form)))(t)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return must.Get(http.DefaultTransport.RoundTrip(r))(t)
}

// An object can be changed from the page by users who may patch it, as the API server says, and in no other way.
func TestPage_ActsWithTheRightsOfItsReader(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	one, two := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	var all []history.Run
	for i, namespace := range []string{one, two} {
		must.Get(client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "it"}}, metav1.CreateOptions{}))(t)
		all = append(all, runs.Run(i, history.Object{Version: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "it"}, time.Now()))
	}
	o := runs.New(t, all...)
	o.Client = client
	o.Restart()
	may := func(name string, verbs ...string) string {
		return readerBy(t, client, one, name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}, one)
	}
	get, patch := may("may-get", "get"), may("may-patch", "get", "patch")
	everything := readerBy(t, client, one, "may-patch-all", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "patch"}}, "")
	for _, tt := range []struct {
		name, token, page, namespace, do string
		code                             int
		says                             string
		changed                          string // the annotation
	}{
		{"no token", "", one, one, "suspend", http.StatusUnauthorized, "not logged in", ""},
		{"a wrong token", "forged", one, one, "suspend", http.StatusUnauthorized, "not logged in", ""},
		{"who may not patch", get, one, one, "suspend", http.StatusForbidden, "cannot patch resource &#34;configmaps&#34;", ""},
		{"who may not see all", patch, "", one, "suspend", http.StatusForbidden, "may not get the objects of all namespaces", ""},
		{"who may patch, elsewhere", patch, two, two, "suspend", http.StatusForbidden, "may not get the objects in namespace", ""},
		{"who may patch, by the page of their own", patch, one, two, "suspend", http.StatusNotFound, "not found", ""},
		{"who may patch what was there before", patch, one, one, "cancel&uid=" + "of-another", http.StatusConflict, "another object has the name now", ""},
		{"who may patch", patch, one, one, "suspend", http.StatusSeeOther, "", controller.AnnotationPaused},
		{"who may patch, again", patch, one, one, "resume", http.StatusSeeOther, "", ""},
		{"who may patch all", everything, "", two, "reconcile", http.StatusSeeOther, "", controller.AnnotationReconcileAt},
	} {
		query := url.Values{"kind": {"ConfigMap"}, "namespace": {tt.namespace}, "name": {"it"}}.Encode()
		resp := request(t, tt.token, http.MethodPost, operated(t, cfg, o, tt.page)+"act?"+query, "do="+tt.do)
		said := string(must.Get(io.ReadAll(resp.Body))(t))
		must.Do(t, resp.Body.Close())
		if resp.StatusCode != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%s: %s, want %d\n%s", tt.name, resp.Status, tt.code, said)
		}
		is := must.Get(client.CoreV1().ConfigMaps(tt.namespace).Get(t.Context(), "it", metav1.GetOptions{}))(t)
		if _, has := is.Annotations[tt.changed]; has != (tt.changed != "") || !has && len(is.Annotations) > 0 {
			t.Errorf("%s: annotations %v, want %q", tt.name, is.Annotations, tt.changed)
		}
	}
}

// events makes runs begin, twice, and reads a stream until everything that it may report has come twice.
func events(t *testing.T, o *runs.Operator, token, address string, all []history.Run, id, may string, marks ...string) string {
	t.Helper()
	cursor := o.Recorder.Cursor()
	want := 0
	for range 2 {
		for _, run := range all {
			begun := history.Run{Brief: run.Brief}
			begun.ID = "now-" + run.ID
			begun.Finished, begun.Result, begun.Task = time.Time{}, "", nil
			o.Recorder.Begin(begun).Drop(false) // so that it can begin once more
			if strings.Contains(may, run.Name) && slices.Contains(marks, run.Name) {
				want++
			}
		}
	}
	query := url.Values{"cursor": {strconv.FormatUint(cursor, 10)}, "run": {id}}.Encode()
	resp := request(t, token, http.MethodGet, address+"events?"+query, "")
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
