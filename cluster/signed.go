package cluster

import (
	"errors"
	"fmt"

	"github.com/polyrail/polyrail/messages"
	"google.golang.org/protobuf/proto"
)

// Signer signs this node's messages and checks those of others.
type Signer interface {
	// Sign returns a signature, and the certificates that say whose it is.
	Sign(message []byte) (signature []byte, chain [][]byte, err error)
	// Check returns the node whose signature it is.
	Check(message, signature []byte, chain [][]byte) (node string, err error)
}

// errPlainMessage: nodes with keys sign all that they send.
var errPlainMessage = errors.New("it is not signed")

// addressed is what a signature covers: a message to one process says nothing to another.
func addressed(process string, message []byte) []byte {
	return append(append([]byte(process), 0), message...)
}

// signed is a message as it is sent.
func (g *Gossip) signed(to Member, message []byte) ([]byte, error) {
	if g.cfg.Signer == nil {
		return message, nil
	}
	signature, chain, err := g.cfg.Signer.Sign(addressed(to.process(), message))
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&messages.Signed{Message: message, Signature: signature, Chain: chain})
}

// checked is a message that was received. With keys its sender is who has signed it.
func (g *Gossip) checked(b []byte) (*messages.Rendezvous, error) {
	signer := ""
	if g.cfg.Signer != nil {
		var s messages.Signed
		if proto.Unmarshal(b, &s) != nil || len(s.Signature) == 0 {
			return nil, errPlainMessage
		}
		var err error
		if signer, err = g.cfg.Signer.Check(addressed(g.self.process(), s.Message), s.Signature, s.Chain); err != nil {
			return nil, err
		}
		b = s.Message
	}
	m := &messages.Rendezvous{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if g.cfg.Signer != nil && signer != m.From {
		return nil, fmt.Errorf("a message of node %q, signed by node %q", clip(m.From), signer)
	}
	return m, nil
}
