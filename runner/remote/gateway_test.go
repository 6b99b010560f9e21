package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// refusing is an address at which nothing listens.
const refusing = "127.0.0.1:1"

// A Service leads to the replicas that stand by, too, which do not listen.
func TestDial_PassesOverOperatorsThatStandBy(t *testing.T) {
	t.Parallel()
	var d tls.Dialer
	if _, err := d.DialContext(t.Context(), "tcp", refusing); !another(err) {
		t.Errorf("the next one is not tried at once: %v", err)
	}
}

// The log of a Pod that waits for its operator says why, and not with each attempt.
func TestDial_SaysWhyTheOperatorIsNotReached(t *testing.T) {
	t.Parallel()
	certificate, _, err := selfsigned.New(ServerName)
	must.Do(t, err)
	synctest.Test(t, func(t *testing.T) {
		var said []string
		dial := must.Get(dialOperator(Input{URL: "https://operator:8444", CA: certificate}, func(text string) { said = append(said, text) }))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		if _, err := dial(ctx, "tcp", refusing); err == nil {
			t.Error("no error")
		}
		if len(said) != 2 || !strings.Contains(said[0], "https://operator:8444") || !strings.Contains(said[0], "refused") {
			t.Errorf("said %q", said)
		}
	})
}

// A module gives up after a minute: while there is no operator, that is no failure of its role.
func TestGateway_CountsWhatIsGivenUpWithoutAnOperator(t *testing.T) {
	t.Parallel()
	certificate, _, err := selfsigned.New(ServerName)
	must.Do(t, err)
	g := must.Get(newGateway(t.Context(), Input{URL: "https://" + refusing, CA: certificate}))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}} //nolint:gosec // its default is 1.2
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+strings.Replace(g.listener.Addr().String(), "127.0.0.1", "localhost", 1)+"/api", nil))(t)
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("it is answered %d", resp.StatusCode)
	}
	testenv.Eventually(t, "the request to be counted", func(context.Context) error {
		if n := g.cut.Load(); n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	g.close()
}
