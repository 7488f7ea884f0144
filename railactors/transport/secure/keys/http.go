package keys

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ServeHTTP is the configuration of a node that shows itself over TLS with its own certificate. Whoever
// shows one of the same cluster is verified; those who show none are turned down if that is required.
// The files are read again for each connection.
func (s *Source) ServeHTTP(required bool) *tls.Config {
	how := tls.VerifyClientCertIfGiven
	if required {
		how = tls.RequireAndVerifyClientCert
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: how,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.Current()
			return &tls.Config{
				MinVersion:             tls.VersionTLS13,
				Certificates:           []tls.Certificate{c.certificate},
				ClientAuth:             how,
				ClientCAs:              c.roots,
				VerifyConnection:       c.verifyCaller,
				SessionTicketsDisabled: true, // whoever is believed no more is out at the next connection
			}, nil
		}}
}

// verifyCaller checks who looks at a node, if that shows a certificate.
func (c *Credentials) verifyCaller(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	_, _, err := c.verify(raw(s.PeerCertificates))
	return err
}

// CanDialHTTP reports whether the files are named that DialHTTP needs: CA, and Cert and Key, or neither
// of those two.
func (f Files) CanDialHTTP() bool { return f.CA != "" && (f.Cert == "") == (f.Key == "") }

// DialHTTP is the configuration of who looks at a node over TLS: Cert and Key are shown to it, if they
// are given, and CA says who vouches for it. A node of another cluster than the certificate's is turned
// down; without one, any node that CA vouches for will do.
func (f Files) DialHTTP() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true} // nodes have no host names; VerifyConnection checks the rest
	c := &Credentials{}
	switch {
	case !f.CanDialHTTP():
		return nil, fmt.Errorf("%w: TLS needs a file of authorities, and a certificate and its key, or neither", ErrKeys)
	case f.Cert != "":
		var err error
		if c, err = f.Load(); err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{c.certificate}
	default:
		text, err := readFile(f.CA)
		if err != nil {
			return nil, err // names it
		}
		if c.roots, err = pool(text); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrKeys, f.CA, err)
		}
	}
	t.VerifyConnection = func(s tls.ConnectionState) error {
		_, _, err := c.verify(raw(s.PeerCertificates))
		return err
	}
	return t, nil
}

func raw(certs []*x509.Certificate) (chain [][]byte) {
	for _, x := range certs {
		chain = append(chain, x.Raw)
	}
	return chain
}
