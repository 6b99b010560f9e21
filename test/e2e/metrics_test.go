package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// Every query of the dashboards returns data, and every rule uses metrics that exist, with the metrics of an operator
// whose runs succeed, fail, use the API proxy, and are repeated.
func TestMetrics_AnswerEveryQuery(t *testing.T) {
	t.Parallel()
	promcheck := absolute(t, "bin/tools/promcheck")
	if _, err := os.Stat(promcheck); err != nil {
		t.Fatalf("the checker of queries is not built: run `make client-tools`: %v", err)
	}
	s := newStage(t)
	s.role("main", `- name: Make something of the object's own
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "size {{ size }}"}
- name: Refuse
  ansible.builtin.fail: {msg: as asked}
  when: size | int < 0
`)
	k := s.kind()
	s.watch(k, "role: main", "references: [{version: v1, kind: ConfigMap, fromField: spec.settings}]")
	plain := s.kind() // its runs have all measurements of a run, whether or not other runs are forked
	s.watch(plain, "role: main", "executor: runner")
	all := []string{"*"}
	s.env = append(s.env, "KUBECONFIG="+testenv.Kubeconfig(t, testenv.User(t, s.cfg, append(rulesOf(t, "config/rbac/leader_election_role.yaml"),
		rbacv1.PolicyRule{APIGroups: []string{k.gvk.Group, plain.gvk.Group}, Resources: all, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: all}))))
	o := s.start(append(longLease(), "--leader-elect", "--leader-election-id=metrics", "--leader-election-namespace="+s.namespace,
		"--retry-min=1s", "--retry-max=1s", "--watch-content")...)
	ended := func(ctx context.Context, labels ...string) int {
		n, err := o.metric(ctx, "rolewright_runs_total", labels...)
		if err != nil {
			t.Error(err)
		}
		return int(n)
	}
	others := metricsOfOthers(t, k)
	var scrapes []string
	scrape := func() {
		t.Helper()
		status, body, err := fetch(t.Context(), o.metrics)
		if err != nil || status != http.StatusOK {
			t.Fatalf("metrics answer %d: %v", status, err)
		}
		file := filepath.Join(t.TempDir(), fmt.Sprintf("scrape-%d.txt", len(scrapes)))
		must.Do(t, os.WriteFile(file, []byte(body+others), 0o600))
		scrapes = append(scrapes, file)
	}

	k.create("good", map[string]any{"size": 1})
	plain.create("good", map[string]any{"size": 1})
	k.create("bad", map[string]any{"size": -1})
	k.awaitReady("good")
	plain.awaitReady("good")
	for wave := range 3 {
		failures := ended(t.Context(), `cause="retry"`)
		testenv.Eventually(t, "two more repetitions", func(ctx context.Context) error {
			if n := ended(ctx, `cause="retry"`); n < failures+2 {
				return fmt.Errorf("%d so far", n-failures)
			}
			return nil
		})
		k.patch("good", fmt.Sprintf(`{"spec": {"size": %d}}`, wave+2))
		plain.patch("good", fmt.Sprintf(`{"spec": {"size": %d}}`, wave+2))
		k.awaitReady("good")
		plain.awaitReady("good")
		scrape()
	}
	cmd := process(t, promcheck, append([]string{
		"-rules", absolute(t, "config/prometheus/rules.yaml"), "-dashboard", absolute(t, "config/grafana/overview.json"),
		"-dashboard", absolute(t, "config/grafana/kind.json"), "-dashboard", absolute(t, "config/grafana/process.json"),
	}, scrapes...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if log := o.output(); strings.Contains(log, "forbidden") {
		t.Error("the leader election is not allowed something that it does")
	}
	o.stop()
}

// metricsOfOthers are metrics that only an operator with shards, or with webhooks, exports.
func metricsOfOthers(t *testing.T, k kind) string {
	t.Helper()
	reg := prometheus.NewRegistry()
	r := must.Get(metrics.New(reg))(t)
	r.Shards(8, 8, 1)
	r.Webhook(k.gvk.GroupKind(), "validate", metrics.WebhookFailed, time.Second)
	var text strings.Builder
	for _, family := range must.Get(reg.Gather())(t) {
		if strings.HasPrefix(family.GetName(), "rolewright_shard") || strings.HasPrefix(family.GetName(), "rolewright_webhook") {
			must.Get(expfmt.MetricFamilyToText(&text, family))(t)
		}
	}
	return text.String()
}
