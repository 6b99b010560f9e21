package webhookserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/watches"
)

const (
	// lifetime is the lifetime of a certificate. It is replaced when a third of the lifetime is left.
	lifetime = 365 * 24 * time.Hour
	// period is the time between two checks of the certificate and the configurations, and soon the
	// time between two checks while something is wrong with them.
	period = time.Minute
	soon   = 2 * time.Second
	// authoritiesKey is the key of the Secret for the authorities that clients have to trust.
	authoritiesKey = "ca.crt"
	// nextCertKey and nextKeyKey are the keys of the Secret for the certificate that is served next.
	nextCertKey, nextKeyKey = "next.crt", "next.key"
)

// errNoCertificate is the error before the first successful check.
var errNoCertificate = errors.New("there is no certificate yet")

// Certificates keeps a certificate that the API server trusts: in a Secret from which all replicas
// serve, or in memory if a single process is reached by an address. It writes the certificate's
// authority into the configurations and CustomResourceDefinitions of the watches.
type Certificates struct {
	// Client must read and write without a cache.
	Client  client.Client
	Reach   hooks.Reach
	Watches func() []watches.Watch
	Log     logr.Logger
	// Lifetime and Period have their defaults if they are 0.
	Lifetime, Period time.Duration

	current atomic.Pointer[tls.Certificate]
	next    []byte         // the next certificate, once it is trusted for all kinds
	served  chan struct{}  // closed with the first certificate; nil if no server waits for it
	own     *corev1.Secret // in place of a Secret in the cluster, with an address
	said    string         // the last error that was logged
}

func (c *Certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if is := c.current.Load(); is != nil {
		return is, nil
	}
	return nil, errNoCertificate
}

// Keep checks the certificate and the configurations until ctx ends. It logs each error once.
func (c *Certificates) Keep(ctx context.Context) error {
	for {
		wait := cmp.Or(c.Period, period)
		err := c.look(ctx)
		said := ""
		if err != nil && ctx.Err() == nil {
			if said, wait = err.Error(), min(wait, soon); said != c.said {
				c.Log.Error(err, "The API server cannot ask the operator about all kinds yet")
			}
		} else if c.said != "" {
			c.Log.Info("The API server can ask the operator about all kinds")
		}
		c.said = said
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look serves the certificate in the Secret. Some time before the certificate expires, the Secret gets
// the next one as well, which is not served until the API server trusts it for all kinds. If several
// replicas make a certificate, the first one that writes it to the Secret wins.
func (c *Certificates) look(ctx context.Context) error {
	secret, err := c.read(ctx)
	if err != nil {
		return err
	}
	written := secret.DeepCopy()
	old := c.renew(ctx, secret)
	if old != nil {
		if c.current.Load() != nil {
			return old
		}
		secret = written // a replica that starts serves the certificate as it is
	}
	pair, err := c.pair(secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	if err != nil {
		return cmp.Or(old, fmt.Errorf("use the certificate of the Secret: %w", err))
	}
	// Even if the configuration of one kind cannot be written, requests for the others are answered.
	untrusted := errors.Join(old, c.inject(ctx, secret.Data[authoritiesKey]))
	if c.current.Swap(pair) == nil && c.served != nil {
		close(c.served)
	}
	if untrusted == nil {
		c.next = secret.Data[nextCertKey]
	}
	return untrusted
}

func (c *Certificates) read(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Reach.Namespace, Name: c.Reach.Service + "-cert"}}
	if c.Reach.URL != "" {
		if c.own != nil {
			return c.own, nil
		}
		return secret, nil
	}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the Secret of the certificate: %w", err)
	}
	return secret, nil
}

// pair returns a certificate of the Secret with its key. It returns an error, too, if the certificate is
// for another host, has expired, or is not valid yet because a clock was wrong when it was made.
func (c *Certificates) pair(secret *corev1.Secret, certificate, key string) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(secret.Data[certificate], secret.Data[key])
	if err != nil {
		return nil, err
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return nil, errors.New("it has expired, or is not valid yet")
	}
	return &pair, pair.Leaf.VerifyHostname(c.Reach.Host())
}

// fresh tells whether more than a third of a certificate's lifetime is left.
func fresh(pair *tls.Certificate) bool { return hasLeft(pair, 3) }

// hasLeft tells whether more than 1/parts of a certificate's lifetime is left.
func hasLeft(pair *tls.Certificate, parts time.Duration) bool {
	return time.Until(pair.Leaf.NotAfter) > pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)/parts
}

// renew writes a certificate into the Secret if it has none. If the certificate is about to
// expire, renew adds the next one, which replaces it when the next one's authority is trusted for
// all kinds, or when a sixth of the lifetime is left. If another replica was faster, renew returns
// an error, and the next look reads what that replica has written.
func (c *Certificates) renew(ctx context.Context, secret *corev1.Secret) error {
	is, err := c.pair(secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	if err == nil && fresh(is) {
		return nil
	}
	if next, nextErr := c.pair(secret, nextCertKey, nextKeyKey); nextErr == nil && fresh(next) {
		if err == nil && hasLeft(is, 6) && !bytes.Equal(c.next, secret.Data[nextCertKey]) {
			return nil
		}
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = secret.Data[nextCertKey], secret.Data[nextKeyKey]
		delete(secret.Data, nextCertKey)
		delete(secret.Data, nextKeyKey)
		return c.write(ctx, secret)
	}
	options := cert.SelfSignedCertKeyOptions{Host: c.Reach.Host(), MaxAge: cmp.Or(c.Lifetime, lifetime)}
	certificate, key, makeErr := cert.GenerateSelfSignedCertKeyWithOptions(options)
	if makeErr != nil {
		return fmt.Errorf("make a certificate: %w", makeErr)
	}
	_, authority := pem.Decode(certificate) // the certificate is followed by its authority
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[authoritiesKey] = slices.Concat(authority, valid(secret.Data[authoritiesKey]))
	if err == nil {
		secret.Data[nextCertKey], secret.Data[nextKeyKey] = certificate, key
	} else {
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = certificate, key
	}
	c.Log.Info("A certificate for webhooks is made", "host", options.Host)
	return c.write(ctx, secret)
}

func (c *Certificates) write(ctx context.Context, secret *corev1.Secret) (err error) {
	switch {
	case c.Reach.URL != "":
		c.own = secret
	case secret.ResourceVersion == "":
		secret.Type = corev1.SecretTypeTLS
		err = c.Client.Create(ctx, secret)
	default:
		err = c.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write the Secret of the certificate: %w", err)
	}
	return nil
}

// valid returns the authorities of a bundle that have not expired, the latest two at most.
func valid(bundle []byte) []byte {
	var kept [][]byte
	for block, rest := pem.Decode(bundle); block != nil && len(kept) < 2; block, rest = pem.Decode(rest) {
		if is, err := x509.ParseCertificate(block.Bytes); err == nil && time.Now().Before(is.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(block))
		}
	}
	return bytes.Join(kept, nil)
}

// inject makes the API server trust the authorities in the configurations and
// CustomResourceDefinitions of the watches, as far as these are installed.
func (c *Certificates) inject(ctx context.Context, authorities []byte) error {
	var errs []error
	seen := map[string]bool{}
	for _, w := range c.Watches() {
		if !w.Webhooks.NeedServer() {
			continue
		}
		m, err := c.Client.RESTMapper().RESTMapping(w.GVK.GroupKind(), w.GVK.Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("find the resource of %s: %w", w.GVK, err))
			continue
		}
		name := hooks.ConfigurationName(w.GVK.GroupKind(), m.Resource.Resource)
		if len(w.Webhooks.Conversion) > 0 {
			errs = append(errs, c.trust(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}, authorities))
		}
		if len(hooks.Hooks([]watches.Watch{w})) == 0 || seen[name] {
			continue
		}
		seen[name] = true
		errs = append(errs,
			c.trust(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}, authorities),
			c.trust(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}, authorities))
	}
	return errors.Join(errs...)
}

// trust writes the authorities into an object, if they are not there.
func (c *Certificates) trust(ctx context.Context, o client.Object, authorities []byte) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return c.tryTrust(ctx, o, authorities) })
}

func (c *Certificates) tryTrust(ctx context.Context, o client.Object, authorities []byte) error {
	name := o.GetName()
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read %T %s: %w", o, name, err)
	}
	// A patch keeps fields that this client does not know.
	before, patch := o.DeepCopyObject().(client.Object), client.StrategicMergeFrom
	switch o := o.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			c.Reach.Trust(&o.Webhooks[i].ClientConfig, authorities)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			c.Reach.Trust(&o.Webhooks[i].ClientConfig, authorities)
		}
	case *apiextensionsv1.CustomResourceDefinition:
		want := c.Reach.Conversion(authorities)
		if is := o.Spec.Conversion; is != nil && is.Strategy == apiextensionsv1.WebhookConverter && !hooks.SameTarget(is, want) {
			return fmt.Errorf("CustomResourceDefinition %s has its objects converted elsewhere: remove its spec.conversion, or the conversion of the watch", name)
		}
		o.Spec.Conversion = want
		patch = client.MergeFromWithOptions
	}
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	if err := c.Client.Patch(ctx, o, patch(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("have the API server trust the operator: patch %T %s: %w", o, name, err)
	}
	return nil
}
