package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Authority is a directory with the keys of a small cluster, for those who have no authority of
// their own. All files are for their owner's eyes only.
//
//	ca.pem         the authorities that nodes believe
//	ca-key.pem     private keys of those that can sign, the one that does first; nodes don't need it.
//	               The next key of gossip, while a rotation has added but doesn't use it
//	gossip.key     the keys of gossip, one a line, the one that seals first
//	NODE.pem, NODE-key.pem  a node's certificate and private key
type Authority struct{ Dir string }

const (
	caFile     = "ca.pem"
	caKeyFile  = "ca-key.pem"
	gossipFile = "gossip.key"

	certSuffix = ".pem"
	keySuffix  = "-key.pem"

	caYears        = 10
	nodeYears      = 1
	gossipKeyBytes = 32        // AES-256
	backdate       = time.Hour // for hosts whose clocks are late
)

// Init makes an authority for a cluster. The directory must not have one.
func (a Authority) Init(cluster string) error {
	if err := (Identity{cluster, "any"}).Valid(); err != nil {
		return err
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	for _, name := range []string{caFile, caKeyFile, gossipFile} {
		if _, err := os.Lstat(a.path(name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s exists: %s has an authority", ErrKeys, a.path(name), a.Dir)
		}
	}
	cert, key, err := newAuthority(cluster)
	if err != nil {
		return err
	}
	return a.writeNew([]content{{caKeyFile, key}, {caFile, cert}, {gossipFile, newGossipKey()}})
}

// Node makes, or makes anew, a node's certificate. Its host needs ca.pem, gossip.key and the two
// files of the node. Hosts are the names and addresses under which browsers and the like reach the
// node; without any, those of the certificate that is there stay.
func (a Authority) Node(node string, hosts ...string) error {
	state, err := a.load()
	if err != nil {
		return err
	}
	s, err := a.signer(state, state.keys[0])
	if err != nil {
		return err
	}
	files, err := a.issue(s, node, hosts)
	if err != nil {
		return err
	}
	return a.writeAll(files)
}

// issue makes a node's key and certificate.
func (a Authority) issue(s *signer, node string, hosts []string) ([]content, error) {
	id := Identity{s.cert.Subject.CommonName, node}
	if err := errors.Join(id.Valid(), CheckNode(node)); err != nil {
		return nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: node}, nodeYears)
	template.URIs = []*url.URL{id.url()}
	if err := a.nameHosts(template, node, hosts); err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, own.Public(), s.key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate of node %q: %w", ErrKeys, node, err)
	}
	key, err := keyPEM(own)
	if err != nil {
		return nil, err
	}
	// Who reads in between finds two that don't fit, and keeps what it has.
	return []content{{node + keySuffix, key}, {node + certSuffix, certPEM(der)}}, nil
}

// nameHosts puts names and addresses of hosts into a node's certificate.
func (a Authority) nameHosts(template *x509.Certificate, node string, hosts []string) error {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if h == "" || strings.Trim(h, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != "" {
			return fmt.Errorf("%w: host %q of node %q: neither a name nor an address", ErrKeys, h, node)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	text, err := os.ReadFile(a.path(node + certSuffix))
	if len(hosts) > 0 || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if there, err := certificates(text); err == nil { // what is no certificate is replaced
		template.DNSNames, template.IPAddresses = there[0].DNSNames, there[0].IPAddresses
	}
	return nil
}

// Nodes lists the nodes that have a certificate here.
func (a Authority) Nodes() (nodes []string, err error) {
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	for _, e := range entries {
		if node, ok := strings.CutSuffix(e.Name(), keySuffix); ok && CheckNode(node) == nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// Files are those of a node.
func (a Authority) Files(node string) Files {
	return Files{Cert: a.path(node + certSuffix), Key: a.path(node + keySuffix), CA: a.path(caFile)}
}

// GossipFile is the file of gossip's keys.
func (a Authority) GossipFile() string { return a.path(gossipFile) }

func (a Authority) path(name string) string { return filepath.Join(a.Dir, name) }

// CheckNode returns what keeps a node's name out of the names of files: the certificate of "a-key" would
// take the place of the private key of "a".
func CheckNode(node string) error {
	if node == "" || node == "ca" || strings.HasPrefix(node, ".") ||
		strings.HasSuffix(node+certSuffix, keySuffix) || strings.ContainsAny(node, "/\\\x00 \t\r\n") {
		return fmt.Errorf("%w: no file can be named after node %q", ErrKeys, node)
	}
	return nil
}

// signer is the authority that signs.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// signer finds the certificate of a private key.
func (a Authority) signer(s *state, key *ecdsa.PrivateKey) (*signer, error) {
	for _, c := range s.certs {
		if key.PublicKey.Equal(c.PublicKey) {
			return &signer{c, key}, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has no certificate of the key in %s", ErrKeys, a.path(caFile), a.path(caKeyFile))
}

// state is what an authority's files hold.
type state struct {
	certs  []*x509.Certificate
	keys   []*ecdsa.PrivateKey
	gossip []string

	nextGossip string // in ca-key.pem, between the steps add and use
}

func (a Authority) load() (*state, error) {
	text, err := readFile(a.path(caFile))
	if err != nil {
		return nil, err
	}
	s := &state{}
	if s.certs, err = certificates(text); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeys, a.path(caFile), err)
	}
	if text, err = readFile(a.path(caKeyFile)); err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == gossipBlock {
			s.nextGossip = string(block.Bytes)
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		k, ok := key.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: %s: not a key that this program made (%w)", ErrKeys, a.path(caKeyFile), err)
		}
		s.keys = append(s.keys, k)
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("%w: %s has no key", ErrKeys, a.path(caKeyFile))
	}
	if _, err := Gossip(a.path(gossipFile)); err != nil {
		return nil, err
	}
	if text, err = readFile(a.path(gossipFile)); err != nil {
		return nil, err
	}
	s.gossip = strings.Fields(string(text))
	return s, nil
}

// content is a file to be written.
type content struct {
	name string
	data []byte
}

// writeNew writes files that are not there yet: all of them or none.
func (a Authority) writeNew(files []content) error {
	err := a.writeAll(files)
	if err != nil {
		for _, f := range files {
			_ = os.Remove(a.path(f.name)) // not all were written
		}
	}
	return err
}

func (a Authority) writeAll(files []content) error {
	for _, f := range files {
		if err := a.write(f); err != nil {
			return fmt.Errorf("%w: %w", ErrKeys, err)
		}
	}
	return nil
}

// write replaces a file at once: a node reads the former one or this.
func (a Authority) write(c content) error {
	f, err := os.CreateTemp(a.Dir, ".new-*") // for the owner's eyes only
	if err != nil {
		return err
	}
	_, err = f.Write(c.data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), a.path(c.name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func newAuthority(cluster string) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(pkix.Name{CommonName: cluster, Organization: []string{"polyrail"}}, caYears)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	key, err = keyPEM(k)
	return certPEM(der), key, err
}

func certificate(name pkix.Name, years int) *x509.Certificate {
	serial := make([]byte, 16)
	rand.Read(serial) // never fails
	serial[0] &= 0x7f // positive
	now := time.Now()
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(serial), Subject: name,
		NotBefore: now.Add(-backdate), NotAfter: now.AddDate(years, 0, 0)}
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func certsPEM(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		b.Write(certPEM(c.Raw))
	}
	return b.Bytes()
}

func keyPEM(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newGossipKey() []byte {
	k := make([]byte, gossipKeyBytes)
	rand.Read(k) // never fails
	return append([]byte(base64.StdEncoding.EncodeToString(k)), '\n')
}

func lines(all []string) []byte { return []byte(strings.Join(all, "\n") + "\n") }
