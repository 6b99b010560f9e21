package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// serviceIP is the address of the Service "kubernetes" in default, the first of --service-cluster-ip-range.
const (
	serviceRange = "10.0.0.0/24"
	serviceIP    = "10.0.0.1"
)

// lifetime is the validity of everything that the authority signs. No test keeps a control plane up for longer.
const lifetime = 30 * 24 * time.Hour

// authority is a certificate authority that lives as long as one control plane. It signs for servers and clients alike:
// anyone who has a certificate from it is one of our own programs or the administrator.
type authority struct {
	dir  string // for the files
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// identity is a key with its certificate, both as PEM.
type identity struct {
	cert, key []byte
}

// newAuthority makes an authority that writes its files to dir, which must exist. Its own key is never written.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "rolewright development control plane"},
		NotBefore:             time.Now().Add(-time.Hour), // setting a clock back must not break a running control plane
		NotAfter:              time.Now().Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate back: %w", err)
	}
	a := &authority{dir: dir, key: key, cert: cert, pem: encodePEM("CERTIFICATE", der)}
	return a, a.write("ca.crt", a.pem)
}

// issue signs a certificate for a client, and for a server on the loopback address or a real node's address.
func (a *authority) issue(name string, organizations ...string) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return identity{}, fmt.Errorf("make the serial number of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: organizations},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP), net.ParseIP(nodeIP)},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return identity{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return identity{}, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return identity{cert: encodePEM("CERTIFICATE", cert), key: encodePEM("PRIVATE KEY", der)}, nil
}

// save issues a certificate and writes it with its key as FILE.crt and FILE.key.
func (a *authority) save(file, name string) error {
	id, err := a.issue(name)
	if err != nil {
		return err
	}
	if err := a.write(file+".crt", id.cert); err != nil {
		return err
	}
	return a.write(file+".key", id.key)
}

func (a *authority) write(file string, data []byte) error {
	if err := os.WriteFile(filepath.Join(a.dir, file), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// kubeconfigTemplate contains the certificates, so that the file can be copied and handed on.
const kubeconfigTemplate = `apiVersion: v1
kind: Config
clusters:
  - name: rolewright
    cluster:
      server: {{.Server}}
      certificate-authority-data: {{.Authority}}
users:
  - name: {{.User}}
    user:
      client-certificate-data: {{.Cert}}
      client-key-data: {{.Key}}
contexts:
  - name: rolewright
    context:
      cluster: rolewright
      user: {{.User}}
current-context: rolewright
`

// kubeconfig writes a kubeconfig for a user in the group system:masters to file, readable by its owner only. The programs
// of the control plane are in that group, too: they have no service account per controller.
func (a *authority) kubeconfig(file, server, user string) (identity, error) {
	id, err := a.issue(user, "system:masters")
	if err != nil {
		return identity{}, err
	}
	text, err := template.New("kubeconfig").Parse(kubeconfigTemplate)
	if err != nil {
		return identity{}, fmt.Errorf("parse the kubeconfig template: %w", err)
	}
	var out bytes.Buffer
	err = text.Execute(&out, map[string]string{
		"Server":    server,
		"User":      user,
		"Authority": base64.StdEncoding.EncodeToString(a.pem),
		"Cert":      base64.StdEncoding.EncodeToString(id.cert),
		"Key":       base64.StdEncoding.EncodeToString(id.key),
	})
	if err != nil {
		return identity{}, fmt.Errorf("fill in the kubeconfig template: %w", err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		return identity{}, fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return id, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
