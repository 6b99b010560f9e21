package jobs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// An address has a share of the connections, and gets a new one after it has closed one. The callback reports how many are
// open, and whether one was refused.
func TestFairListener(t *testing.T) {
	t.Parallel()
	said := ""
	l := newFairListener(must.Get(net.Listen("tcp", "127.0.0.1:0"))(t), 2, 3, func(open int, refused bool) { said += fmt.Sprintln(open, refused) })
	defer l.Close()
	dial := func() net.Conn {
		t.Helper()
		conn := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	dial()
	first := must.Get(l.Accept())(t)
	must.Get(l.Accept())(t)
	accepted := make(chan net.Conn)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	third := dial()
	must.Do(t, third.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third connection: %v, want it closed", err)
	}
	must.Do(t, first.Close())
	dial()
	if conn := <-accepted; conn == nil {
		t.Error("no connection after one was closed")
	} else {
		must.Do(t, conn.Close())
	}
	l.count("another address", 1)
	l.count("a third address", 1)
	must.Be(t, "what is told", "1 false\n2 false\n3 true\n2 false\n1 false\n2 false\n1 false\n2 false\n3 true\n", said)
}
