package secure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// maxSaid is more than an error says of what a stranger shows.
const maxSaid = 2 << 10

// long is a text that fills a certificate.
var long = strings.Repeat("x", 30<<10)

// forge makes a certificate that signs itself, or that an issuer signs.
func forge(t *testing.T, c, issuer *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	t.Helper()
	now := time.Now()
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), now.Add(-time.Hour), now.Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Errors about a stranger's certificates go to the log: whatever these say, they are short.
func TestErrorsAboutStrangersAreShort(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	noURI := &x509.Certificate{URIs: []*url.URL{{Scheme: "http", Host: "[" + long}}}
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: long}, IsCA: true,
		BasicConstraintsValid: true}
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "a"}}
	for name, chain := range map[string][][]byte{
		"that can't be read": {forge(t, noURI, noURI, key, key)},
		"of an unknown authority": {forge(t, leaf, issuer, key, key),
			forge(t, issuer, issuer, other, other)},
	} {
		t.Run(name, func(t *testing.T) {
			k := authority(t, "test", "b")
			sealed := secure.Wrap(tcp.New(tcp.Options{}), current(t, k, "test", "b"))
			d, err := sealed.Open("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			go func() {
				c, err := tls.Dial("tcp", d.Addr(), &tls.Config{InsecureSkipVerify: true,
					NextProtos:   []string{"polyrail-rail/1"},
					Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}})
				if err == nil {
					_, _ = c.Write([]byte{0})
					c.Close()
				}
			}()
			c, err := d.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.ReadFull(make([]byte, 1))
			if err == nil || len(err.Error()) > maxSaid {
				t.Errorf("an error of %d bytes: %.200v", len(err.Error()), err)
			}
		})
	}
}
