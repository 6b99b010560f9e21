package remote

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
)

// The log of a Pod that waits for its operator says why, and not with each attempt.
func TestDial_SaysWhyTheOperatorIsNotReached(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l := must.Get(lc.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	must.Do(t, l.Close()) // so that connections are refused
	certificate, _, err := selfsigned.New(ServerName)
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		var said []string
		dial := must.Get(dialOperator(Input{URL: "https://operator:8444", CA: certificate}, func(text string) { said = append(said, text) }))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		if _, err := dial(ctx, "tcp", l.Addr().String()); err == nil {
			t.Error("no error")
		}
		if len(said) != 2 || !strings.Contains(said[0], "https://operator:8444") || !strings.Contains(said[0], "refused") {
			t.Errorf("said %q", said)
		}
	})
}
