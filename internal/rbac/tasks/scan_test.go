package tasks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content writes the files of a case and returns their directory. The role is roles/main.
func content(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines is a report as text: a line for each use, with + where it may make the object, and for each gap, with ?.
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

type scanCase struct {
	files map[string]string // main alone is written as tasks
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
		"short name, and the kind in the arguments": {
			tasks: "- k8s: {state: absent, api_version: v1, kind: Service, name: x}\n",
			want:  []string{at + "1 v1 Service delete,get"},
		},
		"absent by labels": {
			tasks: "- k8s: {state: absent, kind: Pod, label_selectors: [a=b]}\n",
			want:  []string{at + "1 v1 Pod delete,list"},
		},
		"patched": {
			tasks: "- k8s: {state: patched, kind: ConfigMap, name: x, definition: {data: {a: b}}}\n",
			want:  []string{at + "1 v1 ConfigMap get,patch"},
		},
		"replaced": {
			tasks: "- k8s: {force: true, kind: ConfigMap, name: x}\n",
			want:  []string{at + "1 v1 ConfigMap create,get,update +"},
		},
		"applied is patched, whatever force says": {
			tasks: "- k8s: {apply: true, force: true, kind: ConfigMap, name: x}\n",
			want:  []string{at + "1 v1 ConfigMap create,get,patch +"},
		},
		"a state that an expression decides": {
			tasks: "- k8s: {state: \"{{ 'present' if on else 'absent' }}\", kind: ConfigMap, name: x}\n",
			want:  []string{at + "1 v1 ConfigMap delete,get", at + "1 v1 ConfigMap create,get,patch +"},
		},
		"generated name": {
			tasks: "- k8s:\n    definition: {apiVersion: batch/v1, kind: Job, metadata: {generateName: x-}}\n",
			want:  []string{at + "2 batch/v1 Job create +"},
		},
		"a list, and text": {
			tasks: `- k8s:
    definition:
      - apiVersion: v1
        kind: List
        items: []
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
				at + "8 v1 ConfigMap create,get,patch +", at + "12 v1 Secret create,get,patch +",
				"? " + at + "16 the kind is an expression: {{ kind }}",
			},
		},
		"variables that the files tell": {
			tasks: `- vars: {what: DaemonSet, where: {api: apps/v1}}
  k8s: {kind: "{{ what }}", api_version: "{{ where['api'] }}", name: x, state: patched}
- k8s: {kind: "{{ _g_example_com_widget.kind }}", api_version: "{{ _g_example_com_widget.apiVersion }}", name: x, state: patched}
- k8s: {kind: "{{ made }}", name: x, state: patched}
- k8s: {kind: "{{ nobody }}", name: x}
- k8s: {kind: "{{ from_watch }}", name: x, state: patched}
`,
			files: map[string]string{"roles/main/defaults/main.yml": "made: Secret\n"},
			want: []string{
				at + "2 apps/v1 DaemonSet get,patch", at + "3 g.example.com/v1 Widget get,patch", at + "4 v1 Secret get,patch",
				at + "6 v1 Service get,patch",
				"? " + at + "4 the kind comes from the defaults of the role (Secret), which an object's spec can change",
				"? " + at + "5 the kind is an expression: {{ nobody }}",
			},
		},
		"loops": {
			tasks: `- k8s: {kind: "{{ item }}", name: x, state: patched}
  loop: [ConfigMap, Secret]
- k8s: {kind: "{{ one.kind }}", api_version: "{{ one.api }}", name: x, state: patched}
  with_items:
    - {kind: Job, api: batch/v1}
  loop_control: {loop_var: one}
- k8s: {kind: "{{ item }}", name: x}
  loop: "{{ kinds }}"
`,
			want: []string{
				at + "1 v1 ConfigMap get,patch", at + "1 v1 Secret get,patch", at + "3 batch/v1 Job get,patch",
				"? " + at + "7 the kind is an expression: {{ item }}",
			},
		},
		"a template": {
			tasks: "- k8s: {template: all.yaml.j2}\n",
			files: map[string]string{"roles/main/templates/all.yaml.j2": `{# kind: Nothing -#}
---
apiVersion: v1
kind: ConfigMap   # of the clients
metadata: {{ meta | to_json }}
---
{% if replicated %}
kind: StatefulSet
{% else %}
kind: Deployment
{% endif %}
apiVersion: apps/v1
metadata:
  name: {{ name }}
spec:
  template:
    kind: Inner
---
apiVersion: v1
kind: List
items:
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    roleRef: {kind: ClusterRole}
    subjects:
      - kind: ServiceAccount
        name: {{ name }}
---
{% if route %}
apiVersion: route.openshift.io/v1
kind: Route
{% else %}
apiVersion: networking.k8s.io/v1
kind: Ingress
{% endif %}
---
apiVersion: v1
kind: {{ kind }}
`},
			want: []string{
				"templates/all.yaml.j2:4 v1 ConfigMap create,get,patch +", "templates/all.yaml.j2:8 apps/v1 StatefulSet create,get,patch +",
				"templates/all.yaml.j2:10 apps/v1 Deployment create,get,patch +",
				"templates/all.yaml.j2:23 rbac.authorization.k8s.io/v1 RoleBinding create,get,patch +",
				"templates/all.yaml.j2:31 route.openshift.io/v1 Route create,get,patch +", "templates/all.yaml.j2:34 networking.k8s.io/v1 Ingress create,get,patch +",
				"? templates/all.yaml.j2:38 the kind is an expression: {{ kind }}",
			},
		},
		"files by name": {
			tasks: `- k8s:
    src: "{{ item }}"
  with_fileglob: [files/*.yml]
- k8s:
    template: "{{ item }}.j2"
  loop: [a, missing]
- k8s:
    definition: "{{ lookup('template', 'a.j2') | from_yaml }}"
- k8s: {src: "{{ name }}"}
- k8s:
    definition: "{{ lookup('file', item) | from_yaml_all }}"
  loop: [one.yml]
`,
			files: map[string]string{
				"roles/main/files/one.yml": "{kind: Pod, apiVersion: v1, metadata: {name: x}}\n", "roles/main/templates/a.j2": "kind: Secret\napiVersion: v1\nx: {{ y }}\n",
			},
			want: []string{
				"files/one.yml:1 v1 Pod create,get,patch +", "templates/a.j2:1 v1 Secret create,get,patch +",
				"templates/a.j2:1 v1 Secret create,get,patch +", "files/one.yml:1 v1 Pod create,get,patch +",
				"? " + at + "4 the file missing.j2 is not there", "? " + at + "9 the file is named by an expression: {{ name }}",
			},
		},
		"module_defaults": {
			tasks: `- module_defaults:
    group/k8s: {api_version: apps/v1}
    kubernetes.core.k8s_info: {kind: Deployment}
  block:
    - k8s_info: {name: x}
    - k8s: {kind: DaemonSet, name: y, state: patched}
`,
			want: []string{at + "5 apps/v1 Deployment get", at + "6 apps/v1 DaemonSet get,patch"},
		},
		"blocks, handlers, includes and roles": {
			tasks: `- block:
    - k8s_info: {kind: Pod, name: a}
  rescue:
    - k8s_info: {kind: Pod}
  always:
    - include_tasks: more.yml
    - ansible.builtin.include_tasks: {file: "{{ which }}.yml"}
- import_role: {name: other, tasks_from: start}
- include_role:
    name: "{{ role }}"
- include_role: {name: absent}
- import_tasks: nowhere.yml
`,
			files: map[string]string{
				"roles/main/tasks/more.yml":     "- k8s_info: {kind: Node, name: n}\n- include_tasks: more.yml\n",
				"roles/main/handlers/main.yml":  "- name: h\n  k8s_exec: {pod: p, namespace: n, command: c, container: c}\n",
				"roles/main/meta/main.yml":      "dependencies: [{role: base}]\n",
				"roles/base/tasks/main.yaml":    "- k8s_info: {kind: Namespace, name: n}\n",
				"roles/other/tasks/start.yml":   "- k8s_scale: {kind: Deployment, api_version: apps/v1, name: d, replicas: 1}\n",
				"roles/other/tasks/main.yml":    "- k8s_info: {kind: Never}\n",
				"roles/other/handlers/main.yml": "- k8s_log: {name: p}\n",
			},
			want: []string{
				"roles/base/tasks/main.yaml:1 v1 Namespace get", at + "2 v1 Pod get", at + "4 v1 Pod list", "tasks/more.yml:1 v1 Node get",
				"roles/other/tasks/start.yml:1 apps/v1 Deployment get", "roles/other/tasks/start.yml:1 apps/v1 Deployment/scale patch",
				"roles/other/handlers/main.yml:1 v1 Pod/log get", "handlers/main.yml:2 v1 Pod/exec create,get",
				"? " + at + "7 what is included is named by an expression: {{ which }}.yml", "? " + at + "9 the role is named by an expression: {{ role }}",
				"? " + at + "11 the role absent is not installed here", "? " + at + "12 the file nowhere.yml is not there",
			},
		},
		"the other modules": {
			tasks: `- k8s_info: {kind: Pod, name: "{{ x | default(omit) }}"}
- k8s_scale: {kind: Job, api_version: batch/v1, name: d, replicas: 1}
- k8s_exec: {pod: p, namespace: n, command: c}
- k8s_log: {kind: Deployment, api_version: apps/v1, name: d}
- k8s_drain: {name: n}
- k8s_drain: {name: n, state: cordon}
- k8s_cp: {pod: p, namespace: n, remote_path: /x, local_path: /y}
- k8s_json_patch: {kind: ConfigMap, name: c, patch: []}
- k8s_rollback: {kind: Deployment, api_version: apps/v1, name: d, namespace: n}
- k8s_service: {name: s, namespace: n, ports: []}
- k8s_taint: {name: n, taints: []}
- operator_sdk.util.k8s_status: {kind: Widget, api_version: g.example.com/v1, name: x, status: {}}
- operator_sdk.util.k8s_event: {name: e, namespace: n, message: m, reason: r}
- helm: {name: r, chart_ref: some/chart, release_namespace: n}
- operator_sdk.util.requeue_after: {time: 1m}
`,
			want: []string{
				at + "1 v1 Pod get,list", at + "2 batch/v1 Job get,patch", at + "3 v1 Pod get", at + "3 v1 Pod/exec create,get",
				at + "4 v1 Pod/log get", at + "4 apps/v1 Deployment get", at + "4 v1 Pod list",
				at + "5 v1 Node get,patch", at + "5 v1 Pod get,list", at + "5 v1 Pod/eviction create", at + "6 v1 Node get,patch",
				at + "7 v1 Pod get", at + "7 v1 Pod/exec create,get", at + "8 v1 ConfigMap get,patch",
				at + "9 apps/v1 Deployment get,patch", at + "9 apps/v1 ReplicaSet list", at + "10 v1 Service create,get,patch +",
				at + "11 v1 Node get,patch", at + "12 g.example.com/v1 Widget get", at + "12 g.example.com/v1 Widget/status patch",
				at + "13 v1 Event create,get,patch", at + "14 v1 Secret create,delete,get,list,update",
				"? " + at + "14 it is not known what the Helm chart (some/chart) contains",
			},
		},
		"what cannot be known": {
			tasks: `- shell: kubectl get pods
- command: {argv: [date]}
- ansible.builtin.raw: date
- script: x.sh
- some.vendor.thing: {}
- mine: {}
- k8s: "{{ arguments }}"
- k8s: {definition: "{{ objects }}"}
- k8s: {name: x}
- uri: {url: "https://kubernetes.default.svc/api"}
- uri: {url: "https://example.com"}
`,
			files: map[string]string{"roles/main/library/mine.py": ""},
			want: []string{
				"? " + at + "1 a command that uses kubectl", "? " + at + "3 it is not known what raw runs", "? " + at + "4 it is not known what script runs",
				"? " + at + "5 it is not known what the module some.vendor.thing asks of the API server",
				"? " + at + "6 it is not known what library/mine.py asks of the API server", "? " + at + "7 the arguments of k8s are an expression",
				"? " + at + "8 the definition is an expression: {{ objects }}", "? " + at + "9 no kind is named",
				"? " + at + "10 uri may ask the API server: https://kubernetes.default.svc/api",
			},
		},
		"comments that tell": {
			tasks: `# rolewright:rbac apps deployments,deployments/scale get,patch
- name: Told
  # rolewright:rbac core pods delete
  shell: kubectl do something
# rolewright:rbac none
- mine: {}
- shell: kubectl do more
`,
			want: []string{
				at + "2 = \"apps\" deployments get,patch", at + "2 = \"apps\" deployments/scale get,patch", at + "2 = \"\" pods delete",
				"? " + at + "7 a command that uses kubectl",
			},
		},
		"lookups, key=value and local_action": {
			tasks: `- debug: {msg: "{{ lookup('kubernetes.core.k8s', kind='Secret', resource_name=name) }} {{ query('k8s', api_version='apps/v1', kind='Deployment') }}"}
- k8s: state=absent kind=ConfigMap name=x
- local_action: {module: k8s_info, kind: Node}
`,
			want: []string{at + "1 v1 Secret get", at + "1 apps/v1 Deployment list", at + "2 v1 ConfigMap delete,get", at + "3 v1 Node list"},
		},
		"variables that tasks set": {
			tasks: "- set_fact: {what: Pod}\n- k8s_info: {kind: \"{{ what }}\", name: x}\n- shell: date\n  register: other\n- k8s_info: {kind: \"{{ other }}\", name: x}\n",
			files: map[string]string{"roles/main/vars/main.yml": "what: Node\nother: Node\n"},
			want:  []string{"? " + at + "2 the kind is an expression: {{ what }}", "? " + at + "5 the kind is an expression: {{ other }}"},
		},
		"anchors and merge keys": {
			tasks: "- name: a\n  k8s: &common {api_version: apps/v1, kind: Deployment, name: x, state: patched}\n- name: b\n  k8s:\n    <<: *common\n    kind: DaemonSet\n- &task {k8s_info: {kind: Pod, name: x}}\n- <<: *task\n  when: true\n",
			want: []string{
				at + "2 apps/v1 Deployment get,patch", at + "4 apps/v1 DaemonSet get,patch", at + "7 v1 Pod get", at + "7 v1 Pod get",
			},
		},
		"loops over files": {
			tasks: `- k8s: {definition: "{{ item }}"}
  loop: "{{ lookup('template', 'two.j2') | from_yaml_all | list }}"
- k8s: {src: "{{ item }}"}
  loop: "{{ query('fileglob', 'files/*.yml') }}"
- k8s: {definition: "{{ lookup('template', 'deep/' + item + '.yml.j2') }}"}
  loop: [a]
`,
			files: map[string]string{
				"roles/main/templates/two.j2":        "apiVersion: v1\nkind: Secret\nx: {{ y }}\n---\napiVersion: v1\nkind: Pod\nx: {{ y }}\n",
				"roles/main/files/one.yml":           "{apiVersion: v1, kind: Service, metadata: {name: x}}",
				"roles/main/templates/deep/a.yml.j2": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ x }}}\n",
			},
			want: []string{
				"templates/two.j2:2 v1 Secret create,get,patch +", "templates/two.j2:6 v1 Pod create,get,patch +", "files/one.yml:1 v1 Service create,get,patch +",
				"templates/deep/a.yml.j2:2 v1 ConfigMap create,get,patch +",
			},
		},
		"a name that has a default": {
			tasks: "- k8s_info: {kind: Secret, name: \"{{ x | default(y) }}\"}\n- k8s_info: {kind: Secret, name: \"{{ x | default('') }}\"}\n",
			want:  []string{at + "1 v1 Secret get", at + "2 v1 Secret get,list"},
		},
		"other clusters, and Pods as hosts": {
			tasks: `- k8s_info: {kind: Pod, name: x, kubeconfig: /other}
- k8s_info: {kind: Pod, name: x, host: "{{ host | default(omit) }}"}
- command: date
  connection: kubernetes.core.kubectl
`,
			want: []string{
				at + "2 v1 Pod get", "? " + at + "1 k8s_info says with kubeconfig which cluster it asks; nothing is granted for it",
				"? " + at + "4 the connection kubernetes.core.kubectl runs commands in Pods",
			},
		},
		"what is encrypted": {
			tasks: "- include_tasks: secret.yml\n",
			files: map[string]string{"roles/main/tasks/secret.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"},
			want:  []string{"? tasks/secret.yml the file is encrypted"},
		},
		"includes without an end": {
			tasks: "- include_tasks: \"{{ item }}\"\n  with_fileglob: tasks/*.yml\n- include_tasks: other.yml\n- k8s_info: {kind: Pod, name: x}\n",
			files: map[string]string{"roles/main/tasks/other.yml": "- include_tasks: \"{{ item }}\"\n  with_fileglob: tasks/*.yml\n"},
			want:  []string{at + "4 v1 Pod get", at + "4 v1 Pod get"}, // by itself, and as what it includes
		},
		"an owner whose deletion is blocked": {
			tasks: `- k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata:
        name: x
        ownerReferences: [{apiVersion: g.example.com/v1, kind: Widget, blockOwnerDeletion: true}]
`,
			want: []string{at + "3 v1 Secret create,get,patch +", at + "3 g.example.com/v1 Widget/finalizers update"},
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
			dir := content(t, files)
			got, err := Scan(Content{Role: filepath.Join(dir, "roles", "main")}, Options{
				APIVersion: "g.example.com/v1", Group: "g.example.com", Kind: "Widget", Vars: map[string]any{"from_watch": "Service"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, lines(dir, got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestScan_ReadsPlaybooks(t *testing.T) {
	t.Parallel()
	dir := content(t, map[string]string{
		"playbooks/main.yml": `- import_playbook: second.yml
- hosts: localhost
  vars: {what: Secret}
  module_defaults: {k8s: {state: patched}}
  pre_tasks: [{k8s: {kind: "{{ what }}", name: x}}]
  roles: [{role: main, vars: {what: Pod}}, other]
  post_tasks: [{k8s_info: {kind: Node, name: n}}]
`,
		"playbooks/second.yml":                "- hosts: all\n  tasks: [{k8s_info: {kind: Namespace, name: n}}]\n",
		"playbooks/roles/main/tasks/main.yml": "- k8s_info: {kind: \"{{ what }}\", name: x}\n",
		"elsewhere/other/tasks/main.yml":      "- k8s_info: {kind: Service, name: x}\n",
	})
	got, err := Scan(Content{Playbook: filepath.Join(dir, "playbooks", "main.yml")}, Options{RolesPath: []string{filepath.Join(dir, "elsewhere")}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"playbooks/second.yml:2 v1 Namespace get", "playbooks/roles/main/tasks/main.yml:1 v1 Pod get", "elsewhere/other/tasks/main.yml:1 v1 Service get",
		"playbooks/main.yml:5 v1 Secret get,patch", "playbooks/main.yml:7 v1 Node get",
	}
	if diff := cmp.Diff(want, lines(dir, got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestScan_NamesTheFileThatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no YAML":          {map[string]string{main: "- a: [\n"}, "tasks/main.yml: yaml:"},
		"no list":          {map[string]string{main: "a: b\n"}, "tasks/main.yml:1: a file of tasks is a list"},
		"endless":          {map[string]string{main: "- &a [*a]\n"}, "tasks/main.yml: an alias is part of what it stands for"},
		"no task":          {map[string]string{main: "- a\n"}, "tasks/main.yml:1: a task is a mapping"},
		"broken directive": {map[string]string{main: "# rolewright:rbac pods get\n- mine: {}\n"}, `tasks/main.yml:2: the comment "# rolewright:rbac pods get": write "rolewright:rbac GROUP RESOURCE VERBS"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Scan(Content{Role: filepath.Join(content(t, tt.files), "roles", "main")}, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

// A module of ansible-core that is not in the list would be reported as one of which nothing is known.
func TestBuiltin_HasTheModulesOfTheInstalledAnsible(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "ansible-doc", "--list", "ansible.builtin").Output()
	if err != nil {
		t.Fatalf("list the modules of ansible-core: %v: run `make setup`", err)
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "ansible.builtin."), " ")
		if name = strings.TrimSpace(name); name != "" && name != "DEPRECATED:" && !slices.Contains(builtin(), name) {
			t.Errorf("ansible.builtin.%s is missing", name)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, tt := range scanCases() {
		f.Add(tt.tasks)
	}
	f.Fuzz(func(t *testing.T, tasks string) {
		dir := content(t, map[string]string{main: tasks})
		_, _ = Scan(Content{Role: filepath.Join(dir, "roles", "main")}, Options{}) // any answer will do, but there must be one
	})
}
