package controller

import (
	"slices"
	"testing"
)

func TestEnvironment_IsWhatDoesNotChangeByItself(t *testing.T) {
	counting := []string{
		"ANSIBLE_STDOUT_CALLBACK=yaml", "RELATED_IMAGE_TEA=tea:2", "DEFAULT_EDA_VERSION=3", "TACKLE_HUB_IMAGE=hub:2", "ALLOW_ALL=true",
		"DB_PORT=5432", "LANG=C.UTF-8", "POD_NAMESPACE=tea", "WORKER_IMAGE=tea:2",
	}
	others := []string{
		"HOSTNAME=tea-7d9-x", "KUBERNETES_SERVICE_HOST=10.0.0.1", "TEA_SERVICE_PORT_HTTP=80", "TEA_PORT=tcp://10.0.0.7:80",
		"TEA_PORT_80_TCP_ADDR=10.0.0.7", "PATH=/bin", "SSH_CLIENT=::1", "WATCH_NAMESPACE=a", "ANSIBLE_VERBOSITY=3", "ANSIBLE_DEBUG_LOGS=true",
		"MAX_CONCURRENT_RECONCILES_TEA_EXAMPLE_COM=2", "no equals sign",
		"SYSTEMD_EXEC_PID=71", "MY_POD_NAME=tea-7d9-x", "K8S_NODE_NAME=n", "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME=n", "DD_ENTITY_ID=1",
		"AGENT_TAGS=pod:tea-7d9d9-x,team:tea",
	}
	tests := []struct {
		patterns []string
		more     []string // other variables that also count
		without  string   // variables that no longer count
	}{
		{},
		{patterns: []string{"HOSTNAME", "*_SERVICE_PORT_*"}, more: []string{"HOSTNAME=tea-7d9-x", "TEA_SERVICE_PORT_HTTP=80"}},
		{patterns: []string{"-DEFAULT_*"}, without: "DEFAULT_EDA_VERSION=3"},
		{patterns: []string{"-DEFAULT_*", "DEFAULT_EDA_*"}},
	}
	for _, tt := range tests {
		want := slices.DeleteFunc(slices.Concat(counting, tt.more), func(v string) bool { return v == tt.without })
		slices.Sort(want)
		if got := environment(slices.Concat(others, counting), tt.patterns, "tea-7d9d9-x"); !slices.Equal(got, want) {
			t.Errorf("with %q: %q, want %q", tt.patterns, got, want)
		}
	}
}
