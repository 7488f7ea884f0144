package keys

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
)

// purpose keeps signatures of messages apart from any other use of the same key.
const purpose = "polyrail rendezvous v1\x00"

// Sign signs a message with the node's private key, and returns the signature and the certificates,
// the node's own first, that say whose it is.
func (c *Credentials) Sign(message []byte) (signature []byte, chain [][]byte, err error) {
	s := c.certificate.PrivateKey.(crypto.Signer) // parse has seen to it
	text, how := append([]byte(purpose), message...), crypto.SignerOpts(crypto.SHA256)
	if _, ok := s.Public().(ed25519.PublicKey); ok {
		how = crypto.Hash(0)
	} else {
		sum := sha256.Sum256(text)
		text = sum[:]
	}
	if signature, err = s.Sign(rand.Reader, text, how); err != nil {
		return nil, nil, fmt.Errorf("%w: signing: %w", ErrKeys, err)
	}
	return signature, c.certificate.Certificate, nil
}

// Check returns whose message it is.
func (c *Credentials) Check(message, signature []byte, chain [][]byte) (Identity, error) {
	own, id, err := c.verify(chain)
	if err != nil {
		return Identity{}, err
	}
	algorithm := x509.ECDSAWithSHA256
	switch own.PublicKey.(type) {
	case ed25519.PublicKey:
		algorithm = x509.PureEd25519
	case *rsa.PublicKey:
		algorithm = x509.SHA256WithRSA
	}
	if err := own.CheckSignature(algorithm, append([]byte(purpose), message...), signature); err != nil {
		return Identity{}, fmt.Errorf("%w: signature of node %q: %w", ErrKeys, id.Node, err)
	}
	return id, nil
}
