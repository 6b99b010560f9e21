//go:build e2e

package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/rolewright/rolewright/test/testenv"
)

// granted are the roles of the operator, with their files. The other roles in config/rbac are for people.
var granted = []string{
	"clusterrole/memcached-operator-manager-role",
	"clusterrole/memcached-operator-metrics-auth-role",
	"role/memcached-operator-leader-election-role --namespace=" + system,
}

// unused are permissions that the tests above do not use, and why they are granted nevertheless.
var unused = map[string]string{
	"cache.example.com/memcacheds list": "where the API server does not stream a list as the beginning of a watch, as older ones do not",
	"events.k8s.io/events create":       "for runs that fail",
	"events.k8s.io/events patch":        "for runs that fail",
}

// permissions compares what the operator was granted with what it and its runs have requested since the beginning.
func permissions(t *testing.T, s *shell) {
	t.Helper()
	used := map[string]bool{}
	for _, event := range testenv.AuditEvents(t, account, func(e testenv.AuditEvent) bool { return e.User.Username == account }) {
		if event.ResponseStatus.Code == 403 {
			t.Errorf("refused: %s %s", event.Verb, event.RequestURI)
		}
		used[permission(event.ObjectRef.APIGroup, resource(event), event.Verb)] = true
	}
	for _, role := range granted {
		var found rbacv1.ClusterRole // a Role has the same field
		out := s.ask(t, append([]string{"get", "--output=json"}, strings.Fields(role)...)...)
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatalf("read %s: %v", role, err)
		}
		for _, rule := range found.Rules {
			for _, text := range expand(rule) {
				if !used[text] && unused[text] == "" {
					t.Errorf("%s grants what nothing has asked for: %s", role, text)
				}
			}
		}
	}
	t.Logf("%d permissions used", len(used))
}

func resource(event testenv.AuditEvent) string {
	if event.ObjectRef.Subresource == "" {
		return event.ObjectRef.Resource
	}
	return event.ObjectRef.Resource + "/" + event.ObjectRef.Subresource
}

func permission(group, resource, verb string) string {
	if group == "" {
		return fmt.Sprintf("%s %s", resource, verb)
	}
	return fmt.Sprintf("%s/%s %s", group, resource, verb)
}

// expand lists what a rule grants.
func expand(rule rbacv1.PolicyRule) []string {
	var all []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, permission(group, resource, verb))
			}
		}
	}
	slices.Sort(all)
	return all
}
