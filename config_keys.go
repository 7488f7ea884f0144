package polyrail

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

// TLS names the files of a node's keys, all of them PEM. Where it is set, rails are sealed, and only
// nodes with keys of the same cluster are talked to (docs/security.md). The files are read again for
// each connection: who replaces them changes the keys of a running node.
type TLS struct {
	// Cert has the node's certificate, whose one name polyrail://CLUSTER/NODE is that of Config, and
	// those between it and the authority.
	Cert string
	Key  string // the certificate's private key
	CA   string // the authorities whose certificates are believed
}

// plaintextGossip is gossip's name in Config.Plaintext.
const plaintextGossip = "gossip"

// keyed reports whether the node has any keys.
func (c Config) keyed() bool { return c.TLS != (TLS{}) || c.GossipKeys != "" }

// plain reports whether a rail, or gossip, was said to go without keys.
func (c Config) plain(name string) bool { return slices.Contains(c.Plaintext, name) }

func (c Config) validateKeys() (faults []error) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	t := c.TLS
	if t != (TLS{}) && (t.Cert == "" || t.Key == "" || t.CA == "") {
		add("TLS with certificate %q, key %q and authorities %q: needs all three", t.Cert, t.Key, t.CA)
	}
	for _, name := range c.Plaintext {
		if name != plaintextGossip && !slices.ContainsFunc(c.Rails, func(r Rail) bool { return r.Name == name }) {
			add("plaintext %q: neither a rail nor %q", name, plaintextGossip)
		}
	}
	if !c.keyed() {
		return faults
	}
	if c.GossipKeys == "" && !c.plain(plaintextGossip) {
		add("there are keys, but none for gossip: name a file of them, or %q as plaintext", plaintextGossip)
	}
	if c.GossipKeys != "" && c.plain(plaintextGossip) {
		add("gossip has keys and is named as plaintext")
	}
	for _, r := range c.Rails {
		switch {
		case r.Name == plaintextGossip:
			add("rail %q: where there are keys, that is the name of gossip", r.Name)
		case t == (TLS{}) && !c.plain(r.Name):
			add("there are keys, but none for rail %q: set TLS, or name the rail as plaintext", r.Name)
		}
	}
	return faults
}

// gossipKeys reads the keys of gossip; nil if it has none.
func (c Config) gossipKeys() func() ([][]byte, error) {
	if c.GossipKeys == "" {
		return nil
	}
	return keys.FollowGossip(c.GossipKeys)
}

// signer signs with the keys in force.
type signer struct{ *keys.Source }

func (s signer) Sign(message []byte) (signature []byte, chain [][]byte, err error) {
	return s.Current().Sign(message)
}

func (s signer) Check(message, signature []byte, chain [][]byte) (string, error) {
	id, err := s.Current().Check(message, signature, chain)
	return id.Node, err
}

// source follows the files of the node's keys; nil if it has none. The error tells of gossip's, too.
func (c Config) source(log *slog.Logger) (s *keys.Source, err error) {
	if gossip := c.gossipKeys(); gossip != nil {
		_, err = gossip()
	}
	if c.TLS != (TLS{}) {
		var e error
		s, e = keys.NewSource(keys.Files(c.TLS), keys.Identity{Cluster: c.Cluster, Node: c.Name}, log)
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return s, nil
}
