package supervise

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// forkServer stands for a fork server: it reads one request, and answer answers it. Real fork servers are tested in
// runner/warm. head is the process that the server names as the head of the command.
func forkServer(t *testing.T, answer func(conn *net.UnixConn, head *exec.Cmd)) (socket string, head *exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("", "f") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"}))(t)
	head = exec.Command("sleep", "600")
	must.Do(t, head.Start())
	t.Cleanup(func() {
		_ = head.Process.Kill() // it may be gone
		_ = head.Wait()
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.AcceptUnix()
		if err != nil {
			return // the test has ended
		}
		defer conn.Close()
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			t.Error(err)
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(length[:]))); err != nil {
			t.Error(err)
			return
		}
		answer(conn, head)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String(), head
}

// ready tells the client that the head waits for the word to start.
func ready(conn *net.UnixConn, head *exec.Cmd) {
	fmt.Fprintf(conn, "{\"pid\": %d}\n", head.Process.Pid)
}

// word returns what the client says next; empty if it says nothing.
func word(conn *net.UnixConn) string {
	var text [1]byte
	n, _ := conn.Read(text[:]) // nothing is an answer too
	return string(text[:n])
}

// If a fork server does not start a command, the command has not run and never will, so it can be started in another way.
// Once the head was told to start, the command counts as run.
func TestForked_IsStartedOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	const notStarted, killed = "not started", "killed"
	const timeout = time.Second
	for name, tt := range map[string]struct {
		answer func(conn *net.UnixConn, head *exec.Cmd)
		want   string
	}{
		"it answers nothing":  {func(conn *net.UnixConn, _ *exec.Cmd) { word(conn) }, notStarted},
		"it ends":             {func(*net.UnixConn, *exec.Cmd) {}, notStarted},
		"it refuses":          {func(conn *net.UnixConn, _ *exec.Cmd) { fmt.Fprintln(conn, `{"refused": "no"}`) }, notStarted},
		"it answers nonsense": {func(conn *net.UnixConn, _ *exec.Cmd) { fmt.Fprintln(conn, `Traceback`) }, notStarted},
		"its head is gone":    {func(conn *net.UnixConn, head *exec.Cmd) { end(head); ready(conn, head) }, notStarted},
		"it answers too late": {func(conn *net.UnixConn, head *exec.Cmd) {
			time.Sleep(2 * timeout)
			ready(conn, head)
			if got := word(conn); got != "" {
				t.Errorf("the client says %q", got)
			}
		}, notStarted},
		"it ends after the word": {func(conn *net.UnixConn, head *exec.Cmd) { ready(conn, head); started(t, conn) }, killed},
		"its head ends after it": {func(conn *net.UnixConn, head *exec.Cmd) {
			ready(conn, head)
			started(t, conn)
			end(head)
			word(conn)
		}, killed},
		"it tells how the command ended": {func(conn *net.UnixConn, head *exec.Cmd) {
			ready(conn, head)
			started(t, conn)
			fmt.Fprintln(conn, `{"code": 7, "notes": "forked"}`)
		}, "7 forked"},
		"it ends while it tells so": {func(conn *net.UnixConn, head *exec.Cmd) {
			ready(conn, head)
			started(t, conn)
			fmt.Fprint(conn, `{"code": 7, "no`)
		}, killed},
		"it tells so, and is frozen then": {func(conn *net.UnixConn, head *exec.Cmd) {
			ready(conn, head)
			started(t, conn)
			fmt.Fprintln(conn, `{"code": 7, "notes": "forked"}`)
			end(head)
			word(conn)
		}, "7 forked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command(t, "echo it was not forked")
			c.Server, _ = forkServer(t, tt.answer)
			if c.ForkTimeout = time.Minute; tt.want == notStarted {
				c.ForkTimeout = timeout
			}
			exit, err := Run(t.Context(), c)
			got := fmt.Sprint(exit.Code, " ", exit.Notes)
			switch {
			case errors.Is(err, ErrNotStarted) && errors.Is(err, ErrServer):
				got = notStarted
			case err != nil:
				t.Error(err)
			case exit.Code == -1 && exit.Signal == "SIGKILL" && exit.Cut:
				got = killed
			}
			if got != tt.want {
				t.Errorf("%s (%+v, %v), want %s", got, exit, err, tt.want)
			}
			if text, err := os.ReadFile(c.Output); err != nil || strings.Contains(string(text), "not forked") {
				t.Errorf("output %q, %v", text, err)
			}
		})
	}
}

// However long the answer is, the exit code and the survivors are read from it.
func TestForked_HearsALongAnswer(t *testing.T) {
	t.Parallel()
	survivors := strings.Repeat("4194304, ", 5000) + "4194305"
	notes := strings.Repeat("note ", 5000)
	c := command(t, "echo it was not forked")
	c.Server, _ = forkServer(t, func(conn *net.UnixConn, head *exec.Cmd) {
		ready(conn, head)
		started(t, conn)
		fmt.Fprintf(conn, "{\"code\": 7, \"notes\": %q, \"survivors\": [%s]}\n", notes, survivors)
	})
	exit, err := Run(t.Context(), c)
	if exit.Code != 7 || exit.Notes != notes || !errors.Is(err, ErrSurvivors) || !strings.Contains(fmt.Sprint(err), "4194305") {
		t.Errorf("code %d, %d bytes of notes, error %.100v", exit.Code, len(exit.Notes), err)
	}
	path := filepath.Join(t.TempDir(), "end.json")
	must.Do(t, newRecord(exit, err).write(path))
	if again, err := ReadExit(path); again.Code != 7 || !errors.Is(err, ErrSurvivors) {
		t.Errorf("exit %.100v, %v", again, err)
	}
}

// If a server answers when it is too late to start the command, the command is not started, and must not be started in
// another way.
func TestForked_IsNotStartedWhenItIsTooLate(t *testing.T) {
	t.Parallel()
	c := command(t, "echo it was not forked")
	c.Until = SinceBoot() + time.Second
	c.Server, _ = forkServer(t, func(conn *net.UnixConn, head *exec.Cmd) {
		time.Sleep(c.Until - SinceBoot() + time.Millisecond)
		ready(conn, head)
		if got := word(conn); got != "" {
			t.Errorf("the client says %q", got)
		}
	})
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrNotStarted) || errors.Is(err, ErrServer) {
		t.Errorf("error %v", err)
	}
}

func started(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	if got := word(conn); got != "G" {
		t.Errorf("the client says %q", got)
	}
}

// If a command is stopped before its head was told to start, it is not started, without waiting for the server, which is not
// to blame.
func TestForked_IsNotStartedAfterAStop(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*net.UnixConn, *exec.Cmd){
		"it answers nothing":  func(*net.UnixConn, *exec.Cmd) {},
		"it answers too late": ready,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command(t, "echo it was not forked")
			c.ForkTimeout = time.Minute
			ctx, cancel := context.WithCancelCause(t.Context())
			c.Server, _ = forkServer(t, func(conn *net.UnixConn, head *exec.Cmd) {
				cancel(ReasonTold)
				answer(conn, head)
				if got := word(conn); got != "" {
					t.Errorf("the client says %q", got)
				}
			})
			if _, err := Run(ctx, c); !errors.Is(err, ErrNotStarted) || errors.Is(err, ErrServer) {
				t.Error(err)
			}
		})
	}
}

// end kills a head, and waits for it as its parent.
func end(head *exec.Cmd) {
	_ = head.Process.Kill()
	_ = head.Wait()
}
