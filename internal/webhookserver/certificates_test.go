package webhookserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Two replicas serve the certificate of one Secret. It is renewed again and again while they do: at any time, a client
// that trusts what the configuration says reaches both.
func TestCertificates_AreRenewedWhileTheyServe(t *testing.T) {
	cfg := testenv.Config(t)
	namespace, gvk := testenv.Namespace(t, cfg), testenv.CRD(t, cfg)
	c := must.Get(client.New(cfg, client.Options{}))(t)
	watched := []watches.Watch{{GVK: gvk, Webhooks: watches.Webhooks{Validate: []watches.Validation{{Call: watches.Call{
		Command: &watches.Command{Path: "/bin/true"}, Timeout: 5 * time.Second, FailurePolicy: watches.FailurePolicyFail,
	}}}}}}
	reach := hooks.Reach{Namespace: namespace, Service: "webhook"}
	objects := must.Get(hooks.Configurations(watched, []string{namespace}, reach, func(gvk schema.GroupVersionKind) (string, error) {
		return strings.ToLower(gvk.Kind) + "s", nil
	}))(t)
	must.Do(t, c.Create(t.Context(), objects[0]))
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), objects[0]) })

	ctx, stop := context.WithCancel(t.Context())
	var replicas sync.WaitGroup
	var addresses []string
	for range 2 {
		// Certificates are valid from an hour before they are made: this one is renewed after three seconds.
		certificates := &Certificates{
			Client: c, Reach: reach, Watches: func() []watches.Watch { return watched }, Log: logr.Discard(),
			Lifetime: 90*time.Minute + 4500*time.Millisecond, Period: 200 * time.Millisecond,
		}
		l := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: certificates.get}))(t)
		addresses = append(addresses, l.Addr().String())
		replicas.Go(func() { _ = certificates.Keep(ctx) })
		replicas.Go(func() { accept(l) })
		context.AfterFunc(ctx, func() { _ = l.Close() })
	}
	defer replicas.Wait()
	defer stop()

	seen := []map[string]bool{{}, {}}
	served, lost := false, 0
	testenv.Eventually(t, "three certificates of each replica", func(ctx context.Context) error {
		for i, address := range addresses {
			var configuration admissionv1.ValidatingWebhookConfiguration
			if err := c.Get(ctx, client.ObjectKeyFromObject(objects[0]), &configuration); err != nil {
				return err
			}
			serial, err := reached(ctx, address, reach.Host(), configuration.Webhooks[0].ClientConfig.CABundle)
			if err != nil && served { // the configuration may have been read long ago
				must.Do(t, c.Get(ctx, client.ObjectKeyFromObject(objects[0]), &configuration))
				if serial, err = reached(ctx, address, reach.Host(), configuration.Webhooks[0].ClientConfig.CABundle); err != nil {
					lost++
				}
			}
			if err != nil {
				return err
			}
			seen[i][serial] = true
		}
		served = true
		if len(seen[0]) < 3 || len(seen[1]) < 3 {
			return fmt.Errorf("seen: %d and %d", len(seen[0]), len(seen[1]))
		}
		return nil
	})
	if lost > 0 {
		t.Errorf("%d times a replica was not to be trusted", lost)
	}
}

// reached is the serial number of the certificate with which a server proves to be the host.
func reached(ctx context.Context, address, host string, authorities []byte) (string, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return "", errors.New("the configuration has no authority yet")
	}
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// accept completes handshakes until the listener is closed.
func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.(*tls.Conn).Handshake()
		_ = conn.Close()
	}
}
