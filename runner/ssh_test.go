package runner

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/rolewright/rolewright/test/must"
)

// An ssh connection outlives the process that has opened it, so that the run's next process for the same host can use it.
// It does not outlive the run. Another run that used it would lose it.
func TestRun_SharesNoConnectionBySSH(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skipf("NOT TESTED WITH SSH: %v; install it (Debian: apt-get install openssh-client)", err)
	}
	r, port, dir := ansible(t), serveSSH(t), t.TempDir()
	start := func(begun, end string) <-chan Verdict {
		t.Helper()
		req := request(t, "ssh.yml")
		vars := must.Get(json.Marshal(map[string]any{"port": port, "begun": filepath.Join(dir, begun), "end": filepath.Join(dir, end)}))(t)
		req.ExtraVars = vars
		ended := make(chan Verdict, 1)
		go func() {
			res, err := r.Run(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			ended <- res.Verdict()
		}()
		eventually(t, begun, func() bool {
			_, err := os.Stat(filepath.Join(dir, begun))
			return err == nil
		})
		return ended
	}
	first := start("first", "second")
	second := start("second", "end")
	if v := <-first; !v.Success {
		t.Errorf("the first run: %+v", v)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	if v := <-second; !v.Success {
		t.Errorf("the second run, when the first has ended: %+v", v)
	}
	if left, err := filepath.Glob(filepath.Join(r.opts.Temp.dir.Name(), "cp*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// serveSSH starts an ssh server that accepts every client until the test ends, and returns its port.
func serveSSH(t *testing.T) int {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := must.Get(ssh.NewSignerFromKey(key))(t)
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveConnection(t, conn, config) })
		}
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// serveConnection executes the client's commands until the client disconnects.
func serveConnection(t *testing.T, conn net.Conn, config *ssh.ServerConfig) {
	t.Helper()
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { ssh.DiscardRequests(requests) })
	for asked := range channels {
		channel, requests, err := asked.Accept()
		if err != nil {
			return // the client has gone
		}
		wg.Go(func() {
			defer channel.Close()
			for request := range requests {
				_ = request.Reply(request.Type == "exec", nil)
				if request.Type == "exec" {
					execute(t, channel, request.Payload)
					_ = channel.Close()
				}
			}
		})
	}
}

// execute executes the command of a request, and tells the client how it ended.
func execute(t *testing.T, channel ssh.Channel, payload []byte) {
	t.Helper()
	var request struct{ Command string }
	if err := ssh.Unmarshal(payload, &request); err != nil {
		t.Error(err)
		return
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", request.Command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = channel, channel, channel.Stderr()
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return // the client has gone
	}
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(cmd.ProcessState.ExitCode())}))
}
