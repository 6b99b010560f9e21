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
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Two replicas serve the certificate of one Secret, which is renewed again and again. At any time, a client that trusts
// the CA of the configuration reaches both.
func TestCertificates_AreRenewedWhileTheyServe(t *testing.T) {
	cfg := testenv.Config(t)
	c, reach, watched, configuration := checked(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	var replicas sync.WaitGroup
	var addresses []string
	for range 2 {
		// Certificates are valid from an hour before their creation, so this one is renewed after three seconds.
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
			if err := c.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			serial, err := reached(ctx, address, reach.Host(), configuration.Webhooks[0].ClientConfig.CABundle)
			if err != nil && served { // the configuration may have been read long ago
				must.Do(t, c.Get(ctx, client.ObjectKeyFromObject(configuration), configuration))
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

// checked returns a kind whose objects a command validates, with the configuration that is installed for it.
func checked(t *testing.T, cfg *rest.Config) (client.Client, hooks.Reach, []watches.Watch, *admissionv1.ValidatingWebhookConfiguration) {
	t.Helper()
	namespace, gvk := testenv.Namespace(t, cfg), testenv.CRD(t, cfg)
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)))
	c := must.Get(client.New(cfg, client.Options{Scheme: scheme}))(t)
	watched := []watches.Watch{{GVK: gvk, Webhooks: watches.Webhooks{Validate: []watches.Validation{{Call: watches.Call{
		Command: &watches.Command{Path: "/bin/true"}, Timeout: 5 * time.Second, FailurePolicy: watches.FailurePolicyFail,
	}}}}}}
	reach := hooks.Reach{Namespace: namespace, Service: "webhook"}
	objects := must.Get(hooks.Configurations(watched, []string{namespace}, reach, func(gvk schema.GroupVersionKind) (string, error) {
		return strings.ToLower(gvk.Kind) + "s", nil
	}))(t)
	must.Do(t, c.Create(t.Context(), objects[0]))
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), objects[0]) })
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: objects[0].GetName()}}
	return c, reach, watched, configuration
}

// If the CRD of a kind cannot be written, the webhooks of the other kinds still answer. A renewed certificate waits for
// that kind, but not until the old certificate has expired.
func TestCertificates_AreServedBesideAKindThatFails(t *testing.T) {
	cfg := testenv.Config(t)
	c, reach, watched, configuration := checked(t, cfg)
	other := testenv.CRD(t, cfg, testenv.WithKind("Elsewhere"), testenv.WithVersions("v1", "v2"), func(crd *apiextensionsv1.CustomResourceDefinition) {
		url := "https://127.0.0.1:1/convert"
		crd.Spec.PreserveUnknownFields = false
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"},
		}}
	})
	watched = append(watched, watches.Watch{GVK: other, Webhooks: watches.Webhooks{Conversion: []watches.Conversion{{From: "v2"}}}})
	// Certificates are valid from an hour before their creation.
	served := func(lifetime time.Duration, looks int) *Certificates {
		certificates := &Certificates{Client: c, Reach: reach, Watches: func() []watches.Watch { return watched }, Log: logr.Discard(), Lifetime: lifetime}
		for range looks {
			if err := certificates.look(t.Context()); err == nil || !strings.Contains(err.Error(), "converted elsewhere") {
				t.Fatalf("with a definition that is another's: %v", err)
			}
		}
		return certificates
	}
	serial := func(certificates *Certificates) string {
		l := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: certificates.get}))(t)
		defer l.Close()
		go accept(l)
		must.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration))
		return must.Get(reached(t.Context(), l.Addr().String(), reach.Host(), configuration.Webhooks[0].ClientConfig.CABundle))(t)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: reach.Namespace, Name: reach.Service + "-cert"}}

	quarter := serial(served(80*time.Minute, 1)) // a quarter of its lifetime is left, so it should be renewed
	if got := serial(served(0, 3)); got != quarter {
		t.Errorf("a certificate is served that not all kinds trust: %s after %s", got, quarter)
	}
	must.Do(t, c.Delete(t.Context(), secret))
	little := serial(served(65*time.Minute, 1))
	if got := serial(served(0, 2)); got == little {
		t.Errorf("the certificate %s, of which a thirteenth is left, is still served", little)
	}
}

// A replica that has started again serves the certificate of the Secret while the next one cannot be written.
func TestCertificates_AreServedWhileTheyCannotBeRenewed(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().Build()
	reach := hooks.Reach{Namespace: "system", Service: "webhook"}
	none := func() []watches.Watch { return nil }
	// Certificates are valid from an hour before their creation: a quarter of the lifetime is left.
	must.Do(t, (&Certificates{Client: c, Reach: reach, Watches: none, Log: logr.Discard(), Lifetime: 80 * time.Minute}).look(t.Context()))
	refused := errors.New("refused")
	broken := interceptor.NewClient(c, interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
		return refused
	}})
	again := &Certificates{Client: broken, Reach: reach, Watches: none, Log: logr.Discard(), served: make(chan struct{})}
	if err := again.look(t.Context()); !errors.Is(err, refused) {
		t.Errorf("error = %v, want why the certificate is not renewed", err)
	}
	select {
	case <-again.served:
		must.Get(again.get(nil))(t)
	default:
		t.Error("no certificate is served")
	}
}

// A certificate that was made while a clock was ahead is replaced: clients refuse it until its time has come.
func TestCertificates_AreReplacedIfTheyAreNotValidYet(t *testing.T) {
	t.Parallel()
	certificates := &Certificates{
		Client: fake.NewClientBuilder().Build(), Reach: hooks.Reach{Namespace: "system", Service: "webhook"},
		Watches: func() []watches.Watch { return nil }, Log: logr.Discard(),
	}
	must.Do(t, certificates.look(t.Context()))
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		must.Do(t, certificates.look(t.Context()))
		if from := must.Get(certificates.get(nil))(t).Leaf.NotBefore; from.After(time.Now()) {
			t.Errorf("it is %s, and the certificate is valid from %s on", time.Now(), from)
		}
	})
}

// reached connects to a server that must prove to be the host, and returns the serial number of its certificate.
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
