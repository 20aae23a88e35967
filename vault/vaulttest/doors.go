package vaulttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Doors are further ways to a Vault: TLS, and a Unix socket.
type Doors struct {
	TLS    string // https://127.0.0.1:<port>
	Socket string // an absolute path
	CA     *x509.CertPool

	port              string
	certFile, keyFile string
}

// NewDoors finds places for them. Somebody still has to listen there: see
// [Doors.HCL] and [Doors.Listen].
func NewDoors(t testing.TB) Doors {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	dir := t.TempDir()
	authority := newAuthority(t)
	d := Doors{TLS: "https://127.0.0.1:" + port, Socket: filepath.Join(dir, "vault.sock"), CA: authority.pool(), port: port}
	d.certFile, d.keyFile = authority.issue(t, dir, "vault", x509.ExtKeyUsageServerAuth)
	return d
}

// HCL is for the configuration of Vault or OpenBao.
func (d Doors) HCL() string {
	return fmt.Sprintf(`
listener "tcp" {
  address       = "127.0.0.1:%s"
  tls_cert_file = %q
  tls_key_file  = %q
}
listener "unix" {
  address = %q
}
`, d.port, d.certFile, d.keyFile, d.Socket)
}

// Listen is for a server in this process.
func (d Doors) Listen(t testing.TB) (secure, socket net.Listener) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(d.certFile, d.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	// Vault asks for a certificate, and takes any: its auth method judges.
	secure, err = tls.Listen("tcp", "127.0.0.1:"+d.port, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
	if err != nil {
		t.Fatal(err)
	}
	if socket, err = net.Listen("unix", d.Socket); err != nil {
		t.Fatal(err)
	}
	return secure, socket
}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vaulttest"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// issue writes a certificate for 127.0.0.1 and its key into two files in dir.
func (a authority) issue(t testing.TB, dir, name string, usage x509.ExtKeyUsage) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// clientWith shows a certificate.
func clientWith(t testing.TB, ca *x509.CertPool, certFile, keyFile string) *http.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca, Certificates: []tls.Certificate{pair}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Clients are an authority, in PEM, and what issues its certificates into files.
func Clients(t testing.TB) (authority string, issue func(name string) (certFile, keyFile string)) {
	a, dir := newAuthority(t), t.TempDir()
	return a.pem(), func(name string) (string, string) { return a.issue(t, dir, name, x509.ExtKeyUsageClientAuth) }
}
