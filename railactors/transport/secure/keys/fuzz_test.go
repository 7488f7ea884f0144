package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"
)

// made are the files of a node a of cluster prod, and gossip's. They are always the same: each of
// fuzzing's processes makes its own, and they exchange inputs.
func made(f *testing.F) (certificate, key, authorities, gossip []byte) {
	f.Helper()
	sign := func(seed byte) ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	}
	issue := func(serial byte, change func(c *x509.Certificate)) []byte {
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(serial)), Subject: pkix.Name{CommonName: "prod"},
			NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)}
		change(c)
		authority := &x509.Certificate{Subject: pkix.Name{CommonName: "prod"}}
		der, err := x509.CreateCertificate(nil, c, authority, sign(serial).Public(), sign(1))
		if err != nil {
			f.Fatal(err)
		}
		return certPEM(der)
	}
	der, err := x509.MarshalPKCS8PrivateKey(sign(2))
	if err != nil {
		f.Fatal(err)
	}
	authorities = issue(1, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })
	certificate = issue(2, func(c *x509.Certificate) { c.URIs = []*url.URL{Identity{"prod", "a"}.url()} })
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), authorities,
		[]byte(base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n")
}

// FuzzFiles: whatever the files hold, they are refused, or are credentials with which a node signs what
// it checks.
func FuzzFiles(f *testing.F) {
	certificate, key, authorities, gossip := made(f)
	f.Add(certificate, key, authorities, gossip)
	f.Add(append(bytes.Clone(certificate), authorities...), key, append(bytes.Clone(authorities), authorities...), append(gossip, gossip...))
	f.Add(key, certificate, certificate, []byte("AAAA"))
	f.Fuzz(func(t *testing.T, certificate, key, authorities, gossip []byte) {
		if all, err := parseGossip(gossip); err == nil {
			for _, k := range all {
				if n := len(k); n != 16 && n != 24 && n != 32 {
					t.Errorf("a key of %d bytes", n)
				}
			}
		}
		c, err := Files{}.parse([3][]byte{certificate, key, authorities})
		if err != nil {
			return
		}
		if err := c.Valid(); err != nil {
			t.Error(err)
		}
		signature, chain, err := c.Sign(gossip)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := c.Check(gossip, signature, chain); err != nil || id != c.Identity {
			t.Errorf("signed by %s, checked as %s: %v", c.Identity, id, err)
		}
	})
}

// FuzzCheck: of whatever comes as a signature and its certificates, none is of another message than
// the one that was signed, or of another node.
func FuzzCheck(f *testing.F) {
	certificate, key, authorities, _ := made(f)
	c, err := Files{}.parse([3][]byte{certificate, key, authorities})
	if err != nil {
		f.Fatal(err)
	}
	signed := []byte("message")
	signature, chain, err := c.Sign(signed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed, signature, chain[0], chain[0])
	f.Add(signed, signature, chain[0], []byte(nil))
	f.Add([]byte(nil), []byte(nil), []byte{0x30, 0}, []byte{0x30})
	f.Fuzz(func(t *testing.T, message, signature, own, between []byte) {
		chain := [][]byte{own}
		if len(between) > 0 {
			chain = append(chain, between)
		}
		if id, err := c.Check(message, signature, chain); err == nil && (id != c.Identity || !bytes.Equal(message, signed)) {
			t.Errorf("%q is of %s", message, id)
		}
	})
}

// FuzzIdentity: whatever names a certificate has, it has one that says the same when it is written
// again, or none. One that says more is none.
func FuzzIdentity(f *testing.F) {
	f.Add("polyrail://prod/a", "")
	f.Add("polyrail://prod/10.0.0.7:x", "https://example.org")
	f.Add("polyrail://prod/a%2Fb", "polyrail://prod/b")
	f.Add("polyrail://u@prod/a?q#f", "polyrail:a")
	f.Add("polyrail://prod/a?q", "")
	f.Add("polyrail://prod/a#f", "")
	f.Add("polyrail://u@prod/a", "")
	f.Fuzz(func(t *testing.T, first, second string) {
		var c x509.Certificate
		for _, name := range []string{first, second} {
			if u, err := url.Parse(name); err == nil && name != "" {
				c.URIs = append(c.URIs, u)
			}
		}
		id, err := identityOf(&c)
		if err != nil {
			return
		}
		if err := id.Valid(); err != nil {
			t.Error(err)
		}
		for _, u := range c.URIs {
			if u.Scheme == Scheme && (u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
				t.Errorf("%q passes for %q", u, id)
			}
		}
		u, err := url.Parse(id.String())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := identityOf(&x509.Certificate{URIs: []*url.URL{u}}); err != nil || again != id {
			t.Errorf("%q became %q, %v", id, again, err)
		}
	})
}
