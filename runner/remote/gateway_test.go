package remote

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
)

// refusing is an address at which nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l := must.Get(lc.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	must.Do(t, l.Close())
	return l.Addr().String()
}

// A Service leads to the replicas that stand by, too, which do not listen.
func TestDial_PassesOverOperatorsThatStandBy(t *testing.T) {
	t.Parallel()
	var d tls.Dialer
	if _, err := d.DialContext(t.Context(), "tcp", refusing(t)); !another(err) {
		t.Errorf("the next one is not tried at once: %v", err)
	}
}

// The log of a Pod that waits for its operator says why, and not with each attempt.
func TestDial_SaysWhyTheOperatorIsNotReached(t *testing.T) {
	t.Parallel()
	address := refusing(t)
	certificate, _, err := selfsigned.New(ServerName)
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		var said []string
		dial := must.Get(dialOperator(Input{URL: "https://operator:8444", CA: certificate}, func(text string) { said = append(said, text) }))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		if _, err := dial(ctx, "tcp", address); err == nil {
			t.Error("no error")
		}
		if len(said) != 2 || !strings.Contains(said[0], "https://operator:8444") || !strings.Contains(said[0], "refused") {
			t.Errorf("said %q", said)
		}
	})
}
