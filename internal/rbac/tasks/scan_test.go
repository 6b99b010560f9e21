package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/test/must"
)

// written writes the files of a case and returns their directory. The role is roles/main.
func written(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// lines formats a report: one line for each use, with + if the task may create the object, and one for each gap, with ?.
func lines(dir string, r Report) []string {
	list := []string{}
	short := func(p Place) string {
		return strings.TrimPrefix(strings.TrimPrefix(p.String(), dir+"/"), "roles/main/")
	}
	for _, u := range r.Uses {
		kind := u.Kind
		if u.Subresource != "" {
			kind += "/" + u.Subresource
		}
		verbs := slices.Clone(u.Verbs)
		slices.Sort(verbs)
		mark := ""
		if u.Makes {
			mark = " +"
		}
		list = append(list, fmt.Sprintf("%s %s %s %s%s", short(u.Place), u.APIVersion, kind, strings.Join(verbs, ","), mark))
	}
	for _, d := range r.Directs {
		list = append(list, fmt.Sprintf("%s = %q %s %s", short(d.Place), d.Group, d.Resource, strings.Join(d.Verbs, ",")))
	}
	for _, g := range r.Gaps {
		list = append(list, fmt.Sprintf("? %s %s", short(g.Place), strings.ReplaceAll(g.What, dir+"/", "")))
	}
	return list
}

const main = "roles/main/tasks/main.yml"

// logs and drain return the uses of these modules without further arguments.
func logs(place string) []string {
	return []string{place + " v1 Pod/log get", place + " v1 Pod get,list"}
}

func drain(place string) []string {
	return []string{place + " v1 Node get,patch", place + " v1 Pod get,list", place + " v1 Pod/eviction create"}
}

type scanCase struct {
	files map[string]string // not needed if main is the only file: tasks has its text
	tasks string
	want  []string
}

func scanCases() map[string]scanCase {
	const at = "tasks/main.yml:"
	return map[string]scanCase{
		"nothing": {tasks: "- debug:\n    msg: hello\n", want: []string{}},
		"the files of a new project": {
			tasks: "---\n# tasks file for Memcached\n",
			files: map[string]string{
				"roles/main/defaults/main.yml": "---\n# defaults file for Memcached\n", "roles/main/vars/main.yml": "---\n# vars file for Memcached\n",
				"roles/main/handlers/main.yml": "---\n# handlers file for Memcached\n", "roles/main/meta/main.yml": "---\n",
			},
			want: []string{},
		},
		"definition": {
			tasks: "- kubernetes.core.k8s:\n    definition:\n      apiVersion: apps/v1\n      kind: Deployment\n      metadata: {name: x}\n",
			want:  []string{at + "3 apps/v1 Deployment create,get,patch +"},
		},
		"states": {
			tasks: `- k8s: {state: absent, api_version: v1, kind: Service, name: x}
- k8s: {state: absent, kind: Pod, label_selectors: [a=b]}
- k8s: {state: patched, kind: ConfigMap, name: x, definition: {data: {a: b}}}
- k8s: {force: true, kind: ConfigMap, name: x}
- k8s: {apply: true, force: true, kind: ConfigMap, name: x}
- k8s: {state: "{{ state }}", kind: Secret, name: x}
- k8s: {force: "{{ force }}", kind: ConfigMap, name: x}
- k8s: {apply: "{{ apply }}", force: true, kind: ConfigMap, name: x}
`,
			want: []string{
				at + "1 v1 Service delete,get", at + "2 v1 Pod delete,get,list", at + "3 v1 ConfigMap get,patch", at + "4 v1 ConfigMap create,get,update +",
				at + "5 v1 ConfigMap create,get,patch +", at + "6 v1 Secret delete,get", at + "6 v1 Secret get,patch", at + "6 v1 Secret create,get,patch +",
				at + "7 v1 ConfigMap create,get,patch,update +", at + "8 v1 ConfigMap create,get,patch,update +",
			},
		},
		"modules of the operator": {
			tasks: `- rolewright.operator.trigger_info:
- rolewright.operator.status: {fields: {a: b}}
- rolewright.operator.event: {reason: A, message: b}
- rolewright.operator.wait_for: {api_version: apps/v1, kind: Deployment, name: x, ready: true}
- rolewright.operator.other: {}
- ansible.builtin.wait_for: {port: 80}
`,
			want: []string{
				at + "3 events.k8s.io/v1 Event create", at + "4 apps/v1 Deployment get", "? " + at + "5 the requests of the module rolewright.operator.other",
			},
		},
		"lists, and text": {
			tasks: `- k8s:
    definition:
      - apiVersion: v1
        kind: ConfigMapList
        items: [{apiVersion: v1, kind: ConfigMap}]
- k8s:
    definition: |
      apiVersion: v1
      kind: Secret
      metadata: {name: x}
      ---
      apiVersion: v1
      kind: {{ kind }}
`,
			want: []string{
				at + "5 v1 ConfigMap create,get,patch +", at + "9 v1 Secret create,get,patch +", "? " + at + "13 the kind is not literal: {{ kind }}",
			},
		},
		"includes, roles and dependencies": {
			tasks: `- include_tasks: more.yml
- block:
    - ansible.builtin.import_tasks: {file: "{{ which }}.yml"}
  rescue:
    - include_role: {name: other}
- include_role: {name: some.collection.role}
- include_tasks: more.yml
`,
			files: map[string]string{
				"roles/main/tasks/more.yml": "- k8s_info: {kind: Pod, name: x}\n- include_tasks: more.yml\n",
				"roles/main/meta/main.yml":  "dependencies: [{role: dep}]\n", "roles/dep/tasks/main.yml": "- k8s_info: {kind: Node}\n",
				"roles/other/handlers/main.yaml": "- k8s_info: {kind: Service, name: x}\n",
			},
			want: []string{
				"roles/dep/tasks/main.yml:1 v1 Node list", "tasks/more.yml:1 v1 Pod get", "roles/other/handlers/main.yaml:1 v1 Service get",
				"? " + at + "3 the included file is named by an expression: {{ which }}.yml", "? " + at + "6 the role some.collection.role is not installed here",
			},
		},
		"templates and files": {
			tasks: `- k8s: {template: two.j2}
- k8s: {src: one.yml, state: absent}
- k8s: {definition: "{{ lookup('template', 'two.j2') | from_yaml_all | list }}"}
- k8s: {template: "{{ item }}"}
- k8s: {template: gone.j2}
- k8s: {template: {path: choice.j2}}
- k8s: {template: [printed.j2]}
`,
			files: map[string]string{
				"roles/main/templates/two.j2":     "# A comment: {{ x }}\n---\n{# kind: None #}\napiVersion: v1\nkind: Secret # a comment\nx:\n  kind: {{ y }}\n---\napiVersion: \"batch/v1\"\nkind: Job\n",
				"roles/main/files/one.yml":        "apiVersion: v1\nkind: Service\n",
				"roles/main/templates/printed.j2": "# {{ ansible_managed }}\n{{ x }}\n{{ objects | to_nice_yaml }}\n",
				"roles/main/templates/choice.j2":  "apiVersion: v1\n{% if a %}\nkind: A\n{% else %}\nkind: B\n{% endif %}\n",
			},
			want: []string{
				"templates/two.j2:5 v1 Secret create,get,patch +", "templates/two.j2:10 batch/v1 Job create,get,patch +", "files/one.yml:2 v1 Service delete,get",
				"templates/two.j2:5 v1 Secret create,get,patch +", "templates/two.j2:10 batch/v1 Job create,get,patch +",
				"templates/choice.j2:3 v1 A create,get,patch +", "templates/choice.j2:5 v1 B create,get,patch +",
				"? " + at + "4 the file is named by an expression: {{ item }}", "? " + at + "5 the file gone.j2 does not exist",
				"? templates/printed.j2:3 this document has no literal kind",
			},
		},
		"modules": {
			tasks: `- k8s_info: {kind: Pod, name: "{{ x | default(omit) }}"}
- k8s_scale: {api_version: apps/v1, kind: Deployment, name: x}
- k8s_exec: {pod: x}
- k8s_drain: {name: x}
- operator_sdk.util.k8s_status: {api_version: g.example.com/v1, kind: Widget, name: x}
- kubernetes.core.helm: {chart_ref: some/chart}
- operator_sdk.util.requeue_after: {time: 1m}
- local_action: {module: k8s_info, kind: Node}
`,
			want: []string{
				at + "1 v1 Pod get,list", at + "2 apps/v1 Deployment get,list,patch", at + "2 apps/v1 Deployment/scale patch",
				at + "3 v1 Pod get", at + "3 v1 Pod/exec create,get", at + "4 v1 Node get,patch", at + "4 v1 Pod get,list", at + "4 v1 Pod/eviction create",
				at + "5 g.example.com/v1 Widget get", at + "5 g.example.com/v1 Widget/status patch", at + "6 v1 Secret create,delete,get,list,update",
				at + "8 v1 Node list", "? " + at + "6 the objects of the Helm chart some/chart",
			},
		},
		"logs and drains": {
			tasks: `- k8s_log: {api_version: apps/v1, kind: Deployment, name: x}
- k8s_log: {name: x}
- k8s_drain: {name: x, delete_options: {disable_eviction: yes}}
- k8s_drain: {name: x, delete_options: "{{ how }}"}
- k8s_drain: {name: x, delete_options: {disable_eviction: false}}
`,
			want: slices.Concat([]string{at + "1 apps/v1 Deployment get"}, logs(at+"1"), logs(at+"2"), drain(at+"3"), []string{at + "3 v1 Pod delete"},
				drain(at+"4"), []string{at + "4 v1 Pod delete"}, drain(at+"5")),
		},
		"what is not known": {
			tasks: `- shell: kubectl get pods
- command: {argv: [date]}
- ansible.builtin.raw: date
- some.vendor.thing: {}
- mine: {}
- k8s: "{{ arguments }}"
- k8s: {definition: "{{ objects }}"}
- k8s: {name: x}
- uri: {url: "https://kubernetes.default.svc/api"}
- uri: {url: "https://example.com"}
- k8s: {kind: "{{ kind }}", name: x}
- debug: {msg: "{{ lookup('kubernetes.core.k8s', kind='Secret', resource_name=name) }}"}
- k8s_info: {kind: Pod, name: x, kubeconfig: /other}
- command: date
  connection: kubernetes.core.kubectl
- include_tasks: secret.yml
- k8s: state=absent kind=ConfigMap name=x
`,
			files: map[string]string{"roles/main/library/mine.py": "", "roles/main/tasks/secret.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"},
			want: []string{
				"? " + at + "1 a shell that uses kubectl", "? " + at + "3 the commands of raw", "? " + at + "4 the requests of the module some.vendor.thing",
				"? " + at + "5 the requests of library/mine.py", "? " + at + "6 the arguments of k8s are an expression",
				"? " + at + "7 the definition is an expression: {{ objects }}", "? " + at + "8 the kind is not literal: no text",
				"? " + at + "9 a uri that uses kubernetes", "? " + at + "11 the kind is not literal: {{ kind }}", "? " + at + "12 a lookup of Kubernetes objects",
				"? " + at + "13 k8s_info names with kubeconfig the cluster that it uses; nothing is granted for it",
				"? " + at + "15 the connection kubernetes.core.kubectl runs commands in Pods", "? tasks/secret.yml the file is encrypted",
				"? " + at + "17 the arguments of k8s are an expression",
			},
		},
		"comments that list the requests": {
			tasks: `# rolewright:rbac apps deployments,deployments/scale get,patch
- name: Listed
  # rolewright:rbac core pods delete
  shell: kubectl do something
# rolewright:rbac none
- mine: {}
- shell: kubectl do more
# rolewright:rbac core nodes list
- block:
    # rolewright:rbac none
    - shell: kubectl do nothing
`,
			want: []string{
				at + "2 = \"apps\" deployments get,patch", at + "2 = \"apps\" deployments/scale get,patch", at + "2 = \"\" pods delete", at + "9 = \"\" nodes list",
				"? " + at + "7 a shell that uses kubectl",
			},
		},
		"a key that is there twice": {
			tasks: "- name: a\n  k8s: {kind: Pod, name: x, kind: Secret, state: patched}\n  when: a\n  when: b\n",
			want:  []string{at + "2 v1 Secret get,patch"},
		},
		"merge keys that are there twice": {
			tasks: "- vars: {common: &common {api_version: apps/v1, kind: Pod, name: x}}\n  k8s:\n    <<: *common\n    <<: [{kind: Deployment, state: patched}, {kind: Job}]\n",
			want:  []string{at + "2 apps/v1 Deployment get,patch"},
		},
		"anchors and merge keys": {
			tasks: "- name: a\n  k8s: &common {api_version: apps/v1, kind: Deployment, name: x, state: patched}\n- name: b\n  k8s:\n    <<: *common\n    kind: DaemonSet\n- &task {k8s_info: {kind: Pod, name: x}}\n- <<: *task\n  when: true\n",
			want:  []string{at + "2 apps/v1 Deployment get,patch", at + "4 apps/v1 DaemonSet get,patch", at + "7 v1 Pod get", at + "7 v1 Pod get"},
		},
	}
}

func TestScan_SaysWhatTasksDo(t *testing.T) {
	t.Parallel()
	for name, tt := range scanCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{main: tt.tasks}
			for path, text := range tt.files {
				files[path] = text
			}
			dir := written(t, files)
			got := must.Get(Scan(content.Content{Role: filepath.Join(dir, "roles", "main")}, content.Options{}))(t)
			must.Be(t, "what was got", tt.want, lines(dir, got))
		})
	}
}

func TestScan_ReadsPlaybooks(t *testing.T) {
	t.Parallel()
	dir := written(t, map[string]string{
		"playbooks/main.yml": `- import_playbook: second.yml
- hosts: localhost
  pre_tasks: [{k8s: {kind: Secret, name: x}}]
  roles: [{role: main}, other]
  post_tasks: [{k8s_info: {kind: Node, name: n}}]
`,
		"playbooks/second.yml":                "- hosts: all\n  tasks: [{k8s_info: {kind: Namespace, name: n}}]\n",
		"playbooks/roles/main/tasks/main.yml": "- k8s_info: {kind: Pod, name: x}\n",
		"elsewhere/other/tasks/main.yml":      "- k8s_info: {kind: Service, name: x}\n",
	})
	got := must.Get(Scan(content.Content{Playbook: filepath.Join(dir, "playbooks", "main.yml")}, content.Options{RolesPath: []string{filepath.Join(dir, "elsewhere")}}))(t)
	want := []string{
		"playbooks/second.yml:2 v1 Namespace get", "playbooks/roles/main/tasks/main.yml:1 v1 Pod get", "elsewhere/other/tasks/main.yml:1 v1 Service get",
		"playbooks/main.yml:3 v1 Secret create,get,patch +", "playbooks/main.yml:5 v1 Node get",
	}
	must.Be(t, "what was got", want, lines(dir, got))
}

func TestScan_NamesTheFileThatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no YAML":          {map[string]string{main: "- a: [\n"}, "tasks/main.yml: yaml:"},
		"no list":          {map[string]string{main: "a: b\n"}, "tasks/main.yml:1: a task file must be a list of tasks"},
		"endless":          {map[string]string{main: "- &a [*a]\n"}, "tasks/main.yml: yaml:"},
		"no task":          {map[string]string{main: "- a\n"}, "tasks/main.yml:1: a task must be a mapping"},
		"broken directive": {map[string]string{main: "# rolewright:rbac pods get\n- mine: {}\n"}, `tasks/main.yml:2: the comment "# rolewright:rbac pods get": write "rolewright:rbac GROUP RESOURCE VERBS"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Scan(content.Content{Role: filepath.Join(written(t, tt.files), "roles", "main")}, content.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	for _, tt := range scanCases() {
		f.Add(tt.tasks)
	}
	f.Fuzz(func(t *testing.T, tasks string) {
		dir := written(t, map[string]string{main: tasks})
		_, _ = Scan(content.Content{Role: filepath.Join(dir, "roles", "main")}, content.Options{}) // Scan must return; any answer is fine
	})
}
