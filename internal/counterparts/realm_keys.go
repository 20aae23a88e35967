package counterparts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// realmKeys are made for one test: an authority, and a key with a certificate
// for each side.
type realmKeys struct {
	ca, server, serverKey, broker, brokerKey string // PEM
	jwks                                     string // the broker's public key (RFC 7517 §5)
}

func newRealmKeys(t testing.TB) *realmKeys {
	t.Helper()
	authority, server, broker := newKey(t), newKey(t), newKey(t)
	root := template("a company's authority")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	endpoint := template("127.0.0.1")
	endpoint.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	endpoint.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := template("broker-mtls")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	public, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: broker.Public(), KeyID: "broker", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &realmKeys{
		ca:     certify(t, root, root, authority, authority),
		server: certify(t, endpoint, root, server, authority), serverKey: keyPEM(t, server),
		broker: certify(t, client, root, broker, authority), brokerKey: keyPEM(t, broker),
		jwks: string(public),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func certify(t testing.TB, c, issuer *x509.Certificate, key, by *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
