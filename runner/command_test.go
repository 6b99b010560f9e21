package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

const (
	testID  = "0b5c1e0e-7a57-4d39-9b39-6f1f2f6a7c11"
	testDir = "/tmp/ansible-operator/runner/g/v1/Kind/ns/name/" + testID
)

// TestArguments checks that the command lines are those of ansible-operator, without its --rotate-artifacts.
func TestArguments(t *testing.T) {
	tests := []struct {
		name string
		req  Request
		want string // arguments, separated by blanks
	}{
		{
			name: "playbook",
			req:  Request{Content: Content{Playbook: "/opt/ansible/playbook.yml"}},
			want: "run " + testDir + " -p /opt/ansible/playbook.yml -i " + testID,
		},
		{
			name: "playbook with verbosity",
			req:  Request{Content: Content{Playbook: "/opt/ansible/playbook.yml"}, Verbosity: 2},
			want: "run " + testDir + " -p /opt/ansible/playbook.yml -i " + testID + " -vv",
		},
		{
			name: "playbook skips no facts",
			req:  Request{Content: Content{Playbook: "/opt/ansible/playbook.yml"}, SkipFacts: true},
			want: "run " + testDir + " -p /opt/ansible/playbook.yml -i " + testID,
		},
		{
			name: "role",
			req:  Request{Content: Content{Role: "/opt/ansible/roles/memcached"}},
			want: "run " + testDir + " --role memcached --roles-path /opt/ansible/roles/ --hosts localhost -i " + testID,
		},
		{
			name: "role with verbosity, without facts",
			req:  Request{Content: Content{Role: "/opt/ansible/roles/memcached/"}, Verbosity: 1, SkipFacts: true},
			want: "run " + testDir + " --role memcached --roles-path /opt/ansible/roles/ --hosts localhost -i " + testID + " -v --role-skip-facts",
		},
		{
			name: "role of a collection",
			req:  Request{Content: Content{Role: "/usr/share/ansible/collections/ansible_collections/ns/coll/roles/role"}},
			want: "run " + testDir + " --role role --roles-path /usr/share/ansible/collections/ansible_collections/ns/coll/roles/ --hosts localhost -i " + testID,
		},
		{
			name: "verbosity beyond the end",
			req:  Request{Content: Content{Playbook: "/p.yml"}, Verbosity: 1000000},
			want: "run " + testDir + " -p /p.yml -i " + testID + " -vvvvvvv",
		},
		{
			name: "negative verbosity",
			req:  Request{Content: Content{Playbook: "/p.yml"}, Verbosity: -3},
			want: "run " + testDir + " -p /p.yml -i " + testID,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.ID, tt.req.Dir = testID, testDir
			req := must.Get(tt.req.normalise())(t)
			must.Be(t, "arguments", strings.Fields(tt.want), req.arguments())
		})
	}
}

func TestNormalise_RelativeRoleIsOfTheWorkingDirectory(t *testing.T) {
	dir := must.Get(os.Getwd())(t)
	req := must.Get(Request{ID: testID, Dir: testDir, Content: Content{Role: "roles/memcached"}}.normalise())(t)
	if want := filepath.Join(dir, "roles/memcached"); req.Content.Role != want {
		t.Errorf("role = %q, want %q", req.Content.Role, want)
	}
}

func TestNormalise_Refuses(t *testing.T) {
	valid := Request{ID: testID, Dir: testDir, Content: Content{Playbook: "/p.yml"}}
	tests := []struct {
		name   string
		change func(*Request)
	}{
		{"no ID", func(r *Request) { r.ID = "" }},
		{"ID that climbs", func(r *Request) { r.ID = "../../x" }},
		{"ID that is an option", func(r *Request) { r.ID = "-x" }},
		{"ID that is hidden", func(r *Request) { r.ID = ".x" }},
		{"long ID", func(r *Request) { r.ID = strings.Repeat("x", 65) }},
		{"relative directory", func(r *Request) { r.Dir = "x/y" }},
		{"no content", func(r *Request) { r.Content = Content{} }},
		{"two contents", func(r *Request) { r.Content.Role = "/r" }},
		{"relative playbook", func(r *Request) { r.Content.Playbook = "p.yml" }},
	}
	if _, err := valid.normalise(); err != nil {
		t.Fatalf("the valid request is refused: %v", err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := valid
			tt.change(&req)
			if _, err := req.normalise(); err == nil {
				t.Errorf("%+v is accepted", req)
			}
		})
	}
}
