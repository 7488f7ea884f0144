// Package keys is who a node is and whom it believes: certificates, the authorities that issue them,
// and the keys of gossip. It reads them from files and follows the files (Source), makes them for
// those who have none (Authority), and signs and checks messages. It opens no socket.
//
// A node's certificate has one name polyrail://CLUSTER/NODE. The node is who its certificate says.
package keys

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// railProtocol is what is spoken over TLS (ALPN). So a connection meant for another service with the
// same certificate is none.
const railProtocol = "polyrail-rail/1"

// Scheme is that of the name in a certificate.
const Scheme = "polyrail"

const (
	maxFileBytes = 1 << 20 // read of one file
	maxChain     = 4       // certificates that a node shows: its own, and those between it and the authority
	maxNameBytes = 128
)

// ErrKeys is what errors about certificates and keys match.
var ErrKeys = errors.New("keys")

// Files names the files of a node's credentials, all of them PEM.
type Files struct {
	Cert string // certificate, and those between it and the authority
	Key  string // private key of the certificate
	CA   string // authorities whose certificates are believed
}

// Identity is the name in a certificate.
type Identity struct{ Cluster, Node string }

// String is the URI.
func (i Identity) String() string { return i.url().String() }

func (i Identity) url() *url.URL {
	return &url.URL{Scheme: Scheme, Host: i.Cluster, Path: "/" + i.Node}
}

// Valid returns what keeps the name out of a certificate: a cluster's is letters, digits, dots,
// hyphens and underscores, as the host of a URI is; a node's has no slash.
func (i Identity) Valid() error {
	if !validCluster(i.Cluster) {
		return fmt.Errorf("%w: cluster name %q: letters, digits, '.', '-' and '_' can stand in a certificate",
			ErrKeys, i.Cluster)
	}
	if i.Node == "" || len(i.Node) > maxNameBytes || strings.Contains(i.Node, "/") {
		return fmt.Errorf("%w: node name %q: 1 to %d bytes without a slash can stand in a certificate",
			ErrKeys, i.Node, maxNameBytes)
	}
	return nil
}

func validCluster(name string) bool {
	return name != "" && len(name) <= maxNameBytes && !strings.HasSuffix(name, ".") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// Credentials are what a node shows and what it believes. They don't change.
type Credentials struct {
	Identity                    // its cluster is empty for who only looks at nodes (DialHTTP)
	certificate tls.Certificate // with Leaf
	roots       *x509.CertPool
}

// Until is when the certificate ends.
func (c *Credentials) Until() time.Time { return c.certificate.Leaf.NotAfter }

// Fault is why other nodes don't believe the certificate any more, as far as that can be known here: it,
// or what vouches for it, has ended.
func (c *Credentials) Fault() error {
	if _, _, err := c.verify(c.certificate.Certificate); err != nil {
		return fmt.Errorf("no node believes this one's certificate: %w", err)
	}
	return nil
}

// Load reads the files and checks that they belong together: the certificate's key, an authority
// that is believed, and a time at which it is valid.
func (f Files) Load() (*Credentials, error) {
	b, err := f.read()
	if err != nil {
		return nil, err
	}
	return f.parse(b)
}

// read returns certificate, key and authorities.
func (f Files) read() (b [3][]byte, err error) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if b[i], err = readFile(name); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (f Files) parse(b [3][]byte) (*Credentials, error) {
	pair, err := tls.X509KeyPair(b[0], b[1])
	if err != nil {
		return nil, fmt.Errorf("%w: %s and %s: %w", ErrKeys, f.Cert, f.Key, err)
	}
	roots, err := pool(b[2])
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeys, f.CA, err)
	}
	c := &Credentials{certificate: pair, roots: roots}
	if _, ok := pair.PrivateKey.(crypto.Signer); !ok {
		return nil, fmt.Errorf("%w: %s: a key of type %T cannot sign", ErrKeys, f.Key, pair.PrivateKey)
	}
	if c.Identity, err = identityOf(pair.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	if _, _, err := c.verify(pair.Certificate); err != nil {
		return nil, fmt.Errorf("%s, which %s is to vouch for: %w", f.Cert, f.CA, err)
	}
	return c, nil
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%w: %s: no file of at most %d bytes", ErrKeys, name, maxFileBytes)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	return b, nil
}

// certificates parses all that a PEM text holds.
func certificates(text []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return all, nil
}

func pool(text []byte) (*x509.CertPool, error) {
	all, err := certificates(text)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	for _, c := range all {
		p.AddCert(c)
	}
	return p, nil
}

// identityOf reads the one polyrail name in a certificate.
func identityOf(c *x509.Certificate) (Identity, error) {
	var id Identity
	n := 0
	for _, u := range c.URIs {
		if u.Scheme != Scheme {
			continue
		}
		n++
		id = Identity{u.Host, strings.TrimPrefix(u.Path, "/")}
		if err := id.Valid(); err != nil {
			return Identity{}, err
		}
		if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return Identity{}, fmt.Errorf("%w: certificate of %.200q, want %s://CLUSTER/NODE", ErrKeys, u, Scheme)
		}
	}
	if n != 1 {
		return Identity{}, fmt.Errorf("%w: certificate with %d names %s://CLUSTER/NODE, want one", ErrKeys, n, Scheme)
	}
	return id, nil
}

// verify checks a chain of certificates in DER, the node's own first, and returns whose it is: a
// node of the same cluster, by an authority that is believed.
func (c *Credentials) verify(chain [][]byte) (*x509.Certificate, Identity, error) {
	if len(chain) == 0 || len(chain) > maxChain {
		return nil, Identity{}, fmt.Errorf("%w: %d certificates, want 1 to %d", ErrKeys, len(chain), maxChain)
	}
	var own *x509.Certificate
	between := x509.NewCertPool()
	for i, der := range chain {
		x, err := x509.ParseCertificate(der)
		switch {
		case err != nil:
			return nil, Identity{}, unbelieved(err)
		case i == 0:
			own = x
		default:
			between.AddCert(x)
		}
	}
	_, err := own.Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: between, CurrentTime: time.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, Identity{}, unbelieved(err)
	}
	id, err := identityOf(own)
	if err != nil {
		return nil, Identity{}, err
	}
	if c.Cluster != "" && id.Cluster != c.Cluster {
		return nil, Identity{}, fmt.Errorf("%w: certificate of cluster %q, want %q", ErrKeys, id.Cluster, c.Cluster)
	}
	return own, id, nil
}

// unbelieved bounds what an error repeats of a stranger's certificates: they are long, and it is
// logged.
func unbelieved(err error) error { return fmt.Errorf("%w: %.255w", ErrKeys, err) }

// TLS is the configuration of either side of a handshake: TLS 1.3, both sides show certificates. It
// believes any: Verify is to follow, whose answer each side tells the other.
func (c *Credentials) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // nodes have no host names; Verify checks the rest
		SessionTicketsDisabled: true, // nothing follows the handshake
		NextProtos:             []string{railProtocol},
	}
}

// Verify returns who is at the other end of a TLS connection. The error says why that is not
// believed.
func (c *Credentials) Verify(s tls.ConnectionState) (Identity, error) {
	if s.NegotiatedProtocol != railProtocol {
		return Identity{}, fmt.Errorf("%w: protocol %q, want %q", ErrKeys, s.NegotiatedProtocol, railProtocol)
	}
	_, id, err := c.verify(raw(s.PeerCertificates))
	return id, err
}
