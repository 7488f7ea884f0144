package keys

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Step is a part of a rotation. After each of them the files go to all hosts, before the next one
// follows: so a node always believes what any other one shows.
type Step string

// The steps, in their order.
const (
	RotateAdd  Step = "add"  // nodes believe the next keys too
	RotateUse  Step = "use"  // nodes use them: certificates are made anew, gossip seals with the next key
	RotateDrop Step = "drop" // nodes believe the former ones no more
)

// Rotate makes one step.
func (a Authority) Rotate(step Step) error {
	s, err := a.load()
	if err != nil {
		return err
	}
	next := RotateAdd
	switch {
	case len(s.keys) > 1:
		next = RotateUse
	case len(s.certs) > 1:
		next = RotateDrop
	}
	if step != next {
		return fmt.Errorf("%w: step %q of a rotation: %s is at %q (the steps are %s, %s and %s)",
			ErrKeys, step, a.Dir, next, RotateAdd, RotateUse, RotateDrop)
	}
	switch step {
	case RotateAdd:
		return a.rotateAdd(s)
	case RotateUse:
		return a.rotateUse(s)
	}
	return a.writeAll([]content{
		{caFile, certsPEM(slices.DeleteFunc(s.certs, func(c *x509.Certificate) bool { return !s.keys[0].PublicKey.Equal(c.PublicKey) }))},
		{gossipFile, lines(s.gossip[:1])},
	})
}

func (a Authority) rotateAdd(s *state) error {
	cert, key, err := newAuthority(s.certs[0].Subject.CommonName)
	if err != nil {
		return err
	}
	first, err := keyPEM(s.keys[0])
	if err != nil {
		return err
	}
	return a.writeAll([]content{
		{caFile, append(certsPEM(s.certs), cert...)},
		{gossipFile, lines(append(s.gossip, strings.TrimSpace(string(newGossipKey()))))},
		{caKeyFile, append(first, key...)},
	})
}

// rotateUse changes the authority's own files last, so that it can be called again where it fails.
func (a Authority) rotateUse(s *state) error {
	next := s.keys[len(s.keys)-1]
	key, err := keyPEM(next)
	if err != nil {
		return err
	}
	signer, err := a.signer(s, next)
	if err != nil {
		return err
	}
	nodes, err := a.Nodes()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := a.issue(signer, node, nil); err != nil {
			return err
		}
	}
	last := len(s.gossip) - 1
	gossip := append([]string{s.gossip[last]}, s.gossip[:last]...)
	if err := a.writeAll([]content{{gossipFile, lines(gossip)}}); err != nil {
		return err
	}
	if err := a.writeAll([]content{{caKeyFile, key}}); err != nil {
		return errors.Join(err, a.writeAll([]content{{gossipFile, lines(s.gossip)}}))
	}
	return nil
}
