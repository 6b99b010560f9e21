package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// protocol is how kubectl streams. If the first one does not get through, kubectl uses the other.
type protocol struct {
	name     string
	env      []string
	upgraded string // how the answer names it
}

func protocols() []protocol {
	return []protocol{
		{"WebSocket", nil, "Upgrade: websocket"},
		{"SPDY", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}, "Upgrade: SPDY/3.1"},
	}
}

// pod is a Pod for which commands run, and which is reached through a proxy. Its log, and that of every other Pod, is the
// file "log" in their directory.
type pod struct {
	t        *testing.T
	proxy    byHand
	protocol protocol
}

// podStage returns a Pod "web" behind a proxy, on a node that simulates its containers.
func podStage(t *testing.T, way protocol) pod {
	t.Helper()
	s, _, _, p := clientStage(t)
	s.write("pod.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: `+s.namespace+`}
spec: {nodeName: rolewright-0, automountServiceAccountToken: false, containers: [{name: web, image: web}]}
`)
	p.run("kubectl apply -f pod.yaml")
	direct := testenv.Kubeconfig(t, s.cfg)
	for _, line := range []string{"wait --for=condition=Ready --timeout=3m pod/web", "exec web -- true"} {
		out, err := s.command(direct, "kubectl", append([]string{"--namespace=" + s.namespace}, strings.Fields(line)...)...)
		if err != nil {
			t.Fatalf("the control plane runs no commands for Pods: use `make test-e2e`, or `controlplane exec --pods-exec`\n%s: %s", line, out)
		}
	}
	return pod{t, p, way}
}

// eachProtocol tests streams with either protocol.
func eachProtocol(t *testing.T, test func(pod)) {
	t.Helper()
	t.Parallel()
	for _, way := range protocols() {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			test(podStage(t, way))
		})
	}
}

func (p pod) kubectl(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := p.proxy.stage.client(p.proxy.kubeconfig, "kubectl", append([]string{"--namespace=" + p.proxy.stage.namespace}, args...)...)
	cmd.Env = append(cmd.Env, p.protocol.env...)
	return cmd
}

// run runs kubectl to its end, and returns what it prints to each stream.
func (p pod) run(stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	p.t.Helper()
	cmd := p.kubectl(args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func (p pod) mustRun(stdin io.Reader, args ...string) string {
	p.t.Helper()
	out, errOut, err := p.run(stdin, args...)
	if err != nil {
		p.t.Fatalf("kubectl %q: %v\n%s%s", args, err, out, errOut)
	}
	return out
}

// logLine adds a line to the log, in the format of container runtimes.
func (p pod) logLine(text string) {
	p.t.Helper()
	p.mustRun(nil, "exec", "web", "--", "sh", "-c", "echo 2026-01-01T00:00:00.000000000Z stdout F "+text+" >> log")
}

// stream is a kubectl that keeps running.
type stream struct {
	watching
	args   []string
	stdin  io.Writer
	stderr *bytes.Buffer // to be read after the end
}

func (p pod) start(args ...string) stream {
	p.t.Helper()
	cmd := p.kubectl(args...)
	stdin, err := cmd.StdinPipe() // stays open
	if err != nil {
		p.t.Fatal(err)
	}
	stdout := must.Get(cmd.StdoutPipe())(p.t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must.Do(p.t, cmd.Start())
	return stream{watching{p.t, cmd, bufio.NewScanner(stdout)}, args, stdin, &stderr}
}

// say sends a line.
func (s stream) say(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		s.t.Fatalf("kubectl %q: write %q: %v", s.args, line, err)
	}
}

// exit waits for the end of the stream, which something else than the test causes.
func (s stream) exit() {
	s.t.Helper()
	for s.lines.Scan() {
	}
	err := s.cmd.Wait()
	if s.cmd.ProcessState == nil || !s.cmd.ProcessState.Exited() {
		s.t.Errorf("kubectl %q: %v, want that it ended by itself", s.args, err)
	}
}

func TestProxyStreams_ExecCarriesStreamsAndResult(t *testing.T) {
	eachProtocol(t, func(p pod) {
		t := p.t
		out, errOut, err := p.run(nil, "exec", "web", "--", "sh", "-c", "echo to-out; echo to-err >&2")
		if out != "to-out\n" || errOut != "to-err\n" || err != nil {
			t.Errorf("exec printed %q and %q with %v", out, errOut, err)
		}
		// kwok reports every failure as an internal error, whatever the exit code is.
		out, errOut, err = p.run(nil, "exec", "web", "--", "sh", "-c", "echo before; exit 3")
		if out != "before\n" || !strings.Contains(errOut, "exit status 3") || err == nil {
			t.Errorf("a failing exec printed %q and %q with %v", out, errOut, err)
		}
		if out := p.mustRun(strings.NewReader("piped\n"), "exec", "-i", "web", "--", "head", "-n", "1"); out != "piped\n" {
			t.Errorf("an exec that reads got %q", out)
		}
		_, errOut, err = p.run(nil, "exec", "-v=8", "web", "--", "true")
		if err != nil || !strings.Contains(errOut, p.protocol.upgraded) {
			t.Errorf("exec: %v, want it by %s:\n%s", err, p.protocol.name, errOut)
		}
	})
}

func TestProxyStreams_CopyIsExactBothWays(t *testing.T) {
	eachProtocol(t, func(p pod) {
		t := p.t
		const size = 5 << 20
		want := make([]byte, size)
		_, _ = rand.Read(want) // which never fails
		there := testenv.Random("copied")
		p.proxy.stage.write("sent", string(want))
		p.mustRun(nil, "cp", "sent", "web:"+there)
		if got := p.mustRun(nil, "exec", "web", "--", "wc", "-c", there); !strings.HasPrefix(got, "5242880 ") {
			t.Errorf("in the Pod are %q bytes", got)
		}
		p.mustRun(nil, "cp", "web:"+there, "received")
		got, err := os.ReadFile(filepath.Join(p.proxy.stage.dir, "received"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back, %v; want the %d that were sent", len(got), err, len(want))
		}
	})
}

func TestProxyStreams_LogsArriveAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	p := podStage(t, protocols()[0]) // logs are no upgrade: kubectl has one way for them
	first, second := testenv.Random("first"), testenv.Random("second")
	p.logLine(first)
	if out := p.mustRun(nil, "logs", "web"); !slices.Contains(strings.Split(out, "\n"), first) {
		t.Errorf("logs have no %s:\n%s", first, out)
	}
	follow := p.start("logs", "-f", "web")
	follow.await(first)
	p.logLine(second)
	follow.await(second)
	p.proxy.stop()
	follow.exit()
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) `)

func TestProxyStreams_PortForwardCarriesBothWays(t *testing.T) {
	eachProtocol(t, func(p pod) {
		t := p.t
		forward := p.start("port-forward", "-v=8", "--address=127.0.0.1", "web", ":80")
		forward.await("Forwarding from 127.0.0.1")
		conn := must.Get(net.Dial("tcp", forwarding.FindStringSubmatch(forward.lines.Text())[1]))(t)
		defer conn.Close()
		for _, word := range []string{"there and back", "again"} {
			got := make([]byte, len(word))
			_, writeErr := conn.Write([]byte(word))
			if _, err := io.ReadFull(conn, got); err != nil || writeErr != nil || string(got) != word {
				t.Fatalf("sent %q: %v; got %q back: %v", word, writeErr, got, err)
			}
		}
		p.proxy.stop()
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("the connection gave %d more bytes after the proxy's end", n)
		}
		forward.exit()
		if out := forward.stderr.String(); !strings.Contains(out, p.protocol.upgraded) {
			t.Errorf("port-forward did not go by %s:\n%s", p.protocol.name, out)
		}
	})
}

// awaitAttached waits until a line that is written to the log arrives. An attached client gets only new lines, and
// nothing else shows that the stream is open.
func (p pod) awaitAttached(attach stream) {
	p.t.Helper()
	word := testenv.Random("attached")
	arrived := make(chan struct{})
	go func() { // ends with the attach, which ends with the test
		for attach.lines.Scan() {
			if attach.lines.Text() == word {
				close(arrived)
				return
			}
		}
	}()
	testenv.Eventually(p.t, "a line of the log to arrive", func(context.Context) error {
		p.logLine(word)
		select {
		case <-arrived:
			return nil
		default:
			return errors.New("not there yet")
		}
	})
}

func TestProxyStreams_EndWithTheProxy(t *testing.T) {
	eachProtocol(t, func(p pod) {
		talk := p.start("exec", "-i", "web", "--", "sed", "-u", "s/^/heard /")
		talk.say("one")
		talk.await("heard one")
		talk.say("two")
		talk.await("heard two")
		silent := p.start("exec", "web", "--", "sh", "-c", "echo started; exec sleep 600")
		silent.await("started")
		attach := p.start("attach", "web")
		p.awaitAttached(attach)
		p.proxy.stop()
		talk.exit()
		silent.exit()
		attach.exit()
	})
}

func TestProxyStreams_KubernetesCoreExecutesAndReadsLogs(t *testing.T) {
	t.Parallel()
	p := podStage(t, protocols()[0])
	word := testenv.Random("word")
	p.logLine(word)
	s := p.proxy.stage
	s.write("streams.yml", `
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - kubernetes.core.k8s_exec: {namespace: `+s.namespace+`, pod: web, command: echo out-`+word+`}
      register: executed
    - kubernetes.core.k8s_log: {kind: Pod, namespace: `+s.namespace+`, name: web}
      register: log
    - ansible.builtin.assert:
        that:
          - executed.stdout_lines == ["out-`+word+`"]
          - "'`+word+`' in log.log_lines"
`)
	out, err := s.command(p.proxy.kubeconfig, "ansible-playbook", "streams.yml")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
