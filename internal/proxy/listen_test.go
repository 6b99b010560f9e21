package proxy

import (
	"net"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A process that has the port on the other loopback address would receive the tokens of clients.
func TestListenLoopback_NeedsBothAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		other, err := net.Listen("tcp", address)
		if err != nil { // this machine has no IPv6
			continue
		}
		defer other.Close()
		if _, err := listen(t.Context(), portOf(other)); err == nil {
			t.Errorf("it listens on the port of %s", other.Addr())
		}
	}
	for _, l := range must.Get(ListenLoopback(t.Context(), 0))(t) {
		must.Do(t, l.Close())
	}
}
