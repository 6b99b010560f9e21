package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/operatorpage"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// ui starts rolewright ui, and returns the address of its page.
func (s *stage) ui(args []string) (address string, end func()) {
	s.t.Helper()
	ui := process(s.t, binary(s.t), append([]string{"ui"}, args...)...)
	ui.Dir, ui.Env, ui.Stderr = s.dir, s.env, s.t.Output()
	out := must.Get(ui.StdoutPipe())(s.t)
	must.Do(s.t, ui.Start())
	s.t.Cleanup(func() { _ = ui.Process.Kill(); _ = ui.Wait() })
	address = strings.TrimSpace(must.Get(bufio.NewReader(out).ReadString('\n'))(s.t))
	return address, func() {
		must.Do(s.t, ui.Process.Signal(syscall.SIGINT))
		_ = ui.Wait() // it was interrupted
	}
}

// acts presses buttons for an object of a failed run: those of rolewright ui, with the permissions of the kubeconfig, and
// those of the page that the operator serves, with the permissions of a token.
func (s *stage) acts(k kind, of history.Brief, port string, as []string) {
	s.t.Helper()
	client := must.Get(kubernetes.NewForConfig(s.cfg))(s.t)
	object := url.Values{"group": {of.Group}, "kind": {of.Kind}, "namespace": {of.Namespace}, "name": {of.Name}}.Encode()
	press := func(token, address, do string, code int) string {
		s.t.Helper()
		resp := request(s.t, token, http.MethodPost, address+"act?"+object, "do="+do)
		defer resp.Body.Close()
		said := string(must.Get(io.ReadAll(resp.Body))(s.t))
		if resp.StatusCode != code {
			s.t.Errorf("%s by %s: %s, want %d\n%s", do, address, resp.Status, code, said)
		}
		return said
	}
	paused := func(want bool) {
		s.t.Helper()
		if _, is := k.get(of.Name).GetAnnotations()[controller.AnnotationPaused]; is != want {
			s.t.Errorf("the object is suspended: %v, want %v", is, want)
		}
	}

	address, end := s.ui(as)
	press("", address, "suspend", http.StatusNotFound)
	end()
	paused(false)
	address, end = s.ui(append(as, "--ui-actions"))
	press("", address, "suspend", http.StatusSeeOther)
	end()
	paused(true)

	address = "http://localhost:" + port + operatorpage.Namespaces + s.namespace + "/"
	rule := rbacv1.PolicyRule{APIGroups: []string{k.gvk.Group}, Resources: []string{strings.ToLower(k.gvk.Kind) + "s"}, Verbs: []string{"get"}}
	token := readerBy(s.t, client, s.namespace, "page-reader", rule, s.namespace)
	if said := getAs(s.t, token, address); !strings.Contains(said, "failing") || !strings.Contains(said, "recorded : Fail") {
		s.t.Errorf("the operator's page says\n%s", said)
	}
	if said := press(token, address, "resume", http.StatusForbidden); !strings.Contains(said, "cannot patch resource") {
		s.t.Errorf("who may not resume the object reads\n%s", said)
	}
	press("", address, "resume", http.StatusUnauthorized)
	paused(true)
	rule.Verbs = append(rule.Verbs, "patch")
	token = readerBy(s.t, client, s.namespace, "page-editor", rule, s.namespace)
	press(token, address, "resume", http.StatusSeeOther)
	paused(false)
	press(token, address, "reconcile", http.StatusSeeOther)
	testenv.Eventually(s.t, "a run that was asked for", func(context.Context) error {
		if said := getAs(s.t, token, address+"object?"+object); !strings.Contains(said, "Its last 3 runs") || !strings.Contains(said, "manual") {
			return errors.New(said)
		}
		return nil
	})
}
