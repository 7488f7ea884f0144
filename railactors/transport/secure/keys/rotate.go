package keys

import (
	"crypto/x509"
	"encoding/pem"
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

// gossipBlock is the next key of gossip in ca-key.pem, from add to use. It says which one that is
// when use has stopped half-way.
const gossipBlock = "GOSSIP KEY"

// Rotate makes one step. A step that stopped half-way is the next one again, and then finishes.
func (a Authority) Rotate(step Step) error {
	files, err := a.step(step)
	if err != nil {
		return err
	}
	return a.writeAll(files)
}

// step returns what a step writes, in this order. Its last file decides which step is the next.
func (a Authority) step(step Step) ([]content, error) {
	s, err := a.load()
	if err != nil {
		return nil, err
	}
	next := RotateAdd
	switch {
	case s.nextGossip != "":
		next = RotateUse
	case !s.keys[0].PublicKey.Equal(s.certs[0].PublicKey): // the first one is a former one's
		next = RotateDrop
	}
	if step != next {
		return nil, fmt.Errorf("%w: step %q of a rotation: %s is at %q (the steps are %s, %s and %s)",
			ErrKeys, step, a.Dir, next, RotateAdd, RotateUse, RotateDrop)
	}
	switch step {
	case RotateAdd:
		return s.add()
	case RotateUse:
		return a.use(s)
	}
	return s.drop(), nil
}

func (s *state) add() ([]content, error) {
	cert, key, err := newAuthority(s.certs[0].Subject.CommonName)
	if err != nil {
		return nil, err
	}
	first, err := keyPEM(s.keys[0])
	if err != nil {
		return nil, err
	}
	gossip := strings.TrimSpace(string(newGossipKey()))
	named := pem.EncodeToMemory(&pem.Block{Type: gossipBlock, Bytes: []byte(gossip)})
	return []content{
		{caFile, append(certsPEM(s.certs), cert...)},
		{gossipFile, lines(append(s.gossip, gossip))},
		{caKeyFile, slices.Concat(first, key, named)},
	}, nil
}

func (a Authority) use(s *state) (files []content, err error) {
	next := s.keys[len(s.keys)-1]
	key, err := keyPEM(next)
	if err != nil {
		return nil, err
	}
	signer, err := a.signer(s, next)
	if err != nil {
		return nil, err
	}
	nodes, err := a.Nodes()
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		own, err := a.issue(signer, node, nil)
		if err != nil {
			return nil, err
		}
		files = append(files, own...)
	}
	former := slices.DeleteFunc(s.gossip, func(k string) bool { return k == s.nextGossip })
	gossip := append([]string{s.nextGossip}, former...)
	return append(files, content{gossipFile, lines(gossip)}, content{caKeyFile, key}), nil
}

func (s *state) drop() []content {
	former := func(c *x509.Certificate) bool { return !s.keys[0].PublicKey.Equal(c.PublicKey) }
	return []content{
		{gossipFile, lines(s.gossip[:1])},
		{caFile, certsPEM(slices.DeleteFunc(s.certs, former))},
	}
}
