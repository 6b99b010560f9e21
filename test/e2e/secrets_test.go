package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
)

// The canaries, by the place from which a run gets them.
const (
	fromSecret   = `Canary&Of/A+Secret=1"2'3`
	fromKey      = "-----BEGIN KEY-----\nCanaryLineOne0123456789ABCDEF\nCanaryLineTwo0123456789ABCDEF\n-----END KEY-----\n"
	fromStored   = "CanaryThatTheRunStores"
	fromVault    = "Canary of a vault: text"
	fromVaulted  = "CanaryOfAVaultFile"
	fromSpec     = "CanaryOfTheSpec"
	fromPassword = "CanaryPasswordOfTheVault"
	unknown      = "CanaryThatOnlyNoLogHides"
)

// leaks is a role that prints everything it knows, in every way, and fails. It gives commands their values as input.
const leaks = `
- name: Read the Secret
  kubernetes.core.k8s_info: {kind: Secret, name: canary, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
- name: Store one
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: stored, namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData: {password: CanaryThatTheRunStores}
  register: stored
- name: Remember
  ansible.builtin.set_fact:
    secrets:
      - "{{ found.resources[0].data.password | b64decode }}"
      - "{{ found.resources[0].data.key | b64decode }}"
      - "{{ stored.result.data.password | b64decode }}"
      - "{{ inline }}"
      - "{{ from_file }}"
      - "{{ database.password }}"
      - "{{ lookup('file', lookup('env', 'K8S_AUTH_KUBECONFIG')) }}"
- name: Keep the way to the API server for the test
  ansible.builtin.command: {cmd: "cp {{ lookup('env', 'K8S_AUTH_KUBECONFIG') }} {{ lookup('env', 'NOTES') }}/kubeconfig"}
- name: Show the variables
  ansible.builtin.debug: {var: secrets}
- name: Show the results
  ansible.builtin.debug: {msg: "{{ [found, stored] }}"}
- name: "A name with {{ secrets[0] }} and {{ inline }}"
  ansible.builtin.debug: {msg: "{{ item }}"}
  loop: "{{ secrets }}"
- name: Encode
  ansible.builtin.debug:
    msg:
      - "{{ item | b64encode }}"
      - "{{ ('user:' ~ item) | b64encode }}"
      - "{{ ('ab' ~ item ~ 'cd') | b64encode }}"
      - "{{ item | urlencode }}"
      - "{{ item | to_json }}"
      - "{{ {'a': item} | to_json | to_json }}"
      - "{{ {'a': item} | to_nice_yaml }}"
      - "{{ item | quote }}"
  loop: "{{ secrets }}"
- name: Print
  ansible.builtin.command: {cmd: tee /dev/stderr, stdin: "{{ secrets | join('\n') }}"}
- name: Print in lines
  ansible.builtin.command: {cmd: base64, stdin: "{{ secrets | join(' ') }}"}
- name: Wait for the managed DB
  ansible.builtin.debug: {msg: "This one is {{ found.resources[0].data.word | b64decode }}"}
- name: "Look at the {{ found.resources[0].data.word | b64decode }} one"
  ansible.builtin.debug: {msg: "Looked"}
- name: Warn
  ansible.builtin.command: {cmd: "false"}
  ignore_errors: true
  vars: {ansible_no_such: "{{ secrets }}"}
- name: Fail hidden
  ansible.builtin.fail: {msg: "{{ secrets }} and {{ ['CanaryThatOnly', 'NoLogHides'] | join('') }}"}
  no_log: true
  ignore_errors: true
- name: Break the managed DB
  ansible.builtin.fail: {msg: "It is {{ secrets | join(' and ') }}, managed"}
`

// encrypted returns a text as ansible-vault encrypts it.
func (s *stage) encrypted(text string) string {
	s.t.Helper()
	needAnsible(s.t)
	path := filepath.Join(s.t.TempDir(), "text")
	must.Do(s.t, os.WriteFile(path, []byte(text), 0o600))
	cmd := process(s.t, "ansible-vault", "encrypt", "--vault-id", "prod@"+filepath.Join(s.dir, "password"), path)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("encrypt: %v\n%s", err, out)
	}
	data := must.Get(os.ReadFile(path))(s.t)
	return string(data)
}

// hits returns the canaries that a text contains in any form. None of these forms was made by the code that hides them.
func hits(text string, canaries ...string) []string {
	var found []string
	flat := strings.Join(strings.Fields(text), "")
	for _, value := range canaries {
		for line := range strings.Lines(strings.TrimSpace(value)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "-----") || len(line) < 12 {
				continue
			}
			quoted, _ := json.Marshal(line)
			forms := []string{line, url.QueryEscape(line), url.PathEscape(line), strings.ToLower(url.QueryEscape(line)), string(quoted[1 : len(quoted)-1])}
			for _, before := range []string{"", "x", "xx"} {
				// The middle of the encoded text depends only on the value.
				encoded := base64.RawStdEncoding.EncodeToString([]byte(before + line))
				forms = append(forms, encoded[4:len(encoded)-4])
			}
			for _, form := range forms {
				if strings.Contains(text, form) || strings.Contains(flat, strings.Join(strings.Fields(form), "")) {
					found = append(found, form)
				}
			}
		}
	}
	return found
}

// watchProcesses reads the command lines and environments of all processes of runs until it is stopped.
func watchProcesses(ctx context.Context) (stop func() string) {
	ctx, cancel := context.WithCancel(ctx)
	seen := map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			files, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, file := range files {
				env, err := os.ReadFile(file)
				if err != nil || !bytes.Contains(env, []byte("ROLEWRIGHT_RUN=")) {
					continue
				}
				cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
				seen[string(cmdline)+"\n"+string(env)] = true
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() string {
		cancel()
		<-done
		var all strings.Builder
		for text := range seen {
			all.WriteString(text + "\n")
		}
		return all.String()
	}
}

func TestSecrets_AreNowhereOutsideTheRun(t *testing.T) {
	for name, tc := range map[string]struct {
		env  []string
		args []string
	}{
		"tasks":      {},
		"everything": {args: []string{"--ansible-log-events=everything", "--zap-log-level=5"}, env: []string{"ANSIBLE_DEBUG_LOGS=true"}},
		"raw":        {env: []string{"ANSIBLE_VERBOSITY=3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "canary"}, StringData: map[string]string{"password": fromSecret, "key": fromKey, "word": "managed"},
			}
			must.Get(client.CoreV1().Secrets(s.namespace).Create(t.Context(), secret, metav1.CreateOptions{}))(t)
			notes := t.TempDir()
			s.env = append(s.env, "NOTES="+notes)
			s.env = append(s.env, tc.env...)
			s.write("password", fromPassword+"\n")
			s.role("leaks", leaks)
			s.write("roles/leaks/vars/main.yml", "inline: !vault |\n"+indent(s.encrypted(fromVault), "  "))
			s.write("vars.yml", s.encrypted("from_file: "+fromVaulted+"\n"))
			k := s.kind()
			s.watch(k, "role: leaks", "annotations: trusted", "secretVars: [database.password]")
			o := s.start(append(tc.args, "--ansible-args=--vault-id prod@"+filepath.Join(s.dir, "password")+" -e @"+filepath.Join(s.dir, "vars.yml"))...)
			stop := watchProcesses(t.Context())
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"database": map[string]any{"password": fromSpec}}}}
			u.SetGroupVersionKind(k.gvk)
			u.SetName("it")
			u.SetAnnotations(map[string]string{"ansible.sdk.operatorframework.io/verbosity": "0"})
			if name == "raw" {
				u.SetAnnotations(map[string]string{"ansible.sdk.operatorframework.io/verbosity": "3"})
			}
			must.Get(k.objects.Create(t.Context(), u, metav1.CreateOptions{}))(t)
			it := k.await("it", "to have run", func(o object) bool { return o.settled() })
			processes := stop()
			if it.lastRun().Reason != "TaskFailed" || it.lastRun().FailedTask == nil || it.lastRun().FailedTask.Name != "Break the managed DB" {
				t.Fatalf("the run did not come to its end: %+v", it.lastRun())
			}
			if message := it.lastRun().Message; !strings.Contains(message, "It is [masked] and ") || !strings.Contains(message, `task "Break the managed DB"`) {
				t.Errorf("message: %q", message)
			}

			canaries := []string{fromSecret, fromKey, fromStored, fromVault, fromVaulted, fromSpec, fromPassword, unknown, tokenIn(t, filepath.Join(notes, "kubeconfig"))}
			_, metrics, err := fetch(t.Context(), o.metrics)
			if err != nil {
				t.Fatal(err)
			}
			events := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{}))(t)
			o.stop()
			status, _ := json.Marshal(it.Object["status"])
			log := o.output()
			for _, want := range []string{"Wait for the managed DB", "Break the managed DB", "Look at the [masked] one"} {
				if !strings.Contains(log, want) {
					t.Errorf("log lacks %q", want)
				}
			}
			for where, text := range map[string]string{"log": log, "status": string(status)} {
				for _, told := range []string{"one is managed", "the managed one", ", managed"} {
					if strings.Contains(text, told) {
						t.Errorf("%s: %q is there", where, told)
					}
				}
			}
			if n := strings.Count(log, "[masked]"); n < 10 {
				t.Errorf("%d values are masked in the log: the run has not printed them", n)
			}
			for where, text := range map[string]string{
				"log": log, "status": string(status), "metrics": metrics, "events": encoded(t, events), "processes": processes,
			} {
				for _, form := range hits(text, canaries...) {
					t.Errorf("%s: %q is there", where, form)
				}
			}
			// This proves that the search finds something if it is there.
			stdout := must.Get(os.ReadFile(filepath.Join(s.root, ".runs", string(it.GetUID()), it.lastRun().ID, "artifacts", it.lastRun().ID, "stdout")))(t)
			for _, canary := range canaries {
				if canary != fromPassword && canary != unknown && len(hits(string(stdout), canary)) == 0 {
					t.Errorf("%q is not in the run's own output", canary)
				}
			}
			if !strings.Contains(processes, "ansible-playbook") {
				t.Error("no process of the run was seen")
			}
		})
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	data := must.Get(json.Marshal(v))(t)
	return string(data)
}

// tokenIn returns the bearer token in a kubeconfig.
func tokenIn(t *testing.T, path string) string {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	_, token, ok := strings.Cut(string(data), `token`)
	if !ok {
		t.Fatalf("no token in %s", path)
	}
	return strings.FieldsFunc(token, func(r rune) bool { return strings.ContainsRune("\": ,}\n", r) })[0]
}
