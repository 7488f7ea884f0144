package cluster

import (
	"errors"
	"fmt"
	"time"

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

// Nodes with keys sign all that they send.
var (
	errPlainMessage  = errors.New("it is not signed")
	errSignedMessage = errors.New("it is signed, and this node has no keys to check that")
)

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

// checked is a message that was received. With keys its sender is who has signed it. With an error it
// is what the message says.
func (g *Gossip) checked(b []byte) (*messages.Rendezvous, error) {
	m := &messages.Rendezvous{}
	var s messages.Signed
	if g.cfg.Signer == nil {
		err := proto.Unmarshal(b, m)
		if err != nil && proto.Unmarshal(b, &s) == nil && len(s.Signature) > 0 {
			_ = proto.Unmarshal(s.Message, m)
			err = errSignedMessage
		}
		return m, err
	}
	if proto.Unmarshal(b, &s) != nil || len(s.Signature) == 0 {
		_ = proto.Unmarshal(b, m)
		return m, errPlainMessage
	}
	signer, err := g.cfg.Signer.Check(addressed(g.self.process(), s.Message), s.Signature, s.Chain)
	if bad := proto.Unmarshal(s.Message, m); err == nil {
		err = bad
	}
	if err == nil && signer != m.From {
		err = fmt.Errorf("it is signed by node %q", signer)
	}
	return m, err
}

// refuse notes why a message does not count.
func (g *Gossip) refuse(m *messages.Rendezvous, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unheard, g.unheardAt = fmt.Errorf("a message in the name of node %q is refused: %w", clip(m.GetFrom()), err), time.Now()
}

// Unheard is why a message of another node did not count, the last one since then; or nil.
func (g *Gossip) Unheard(since time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unheardAt.Before(since) {
		return nil
	}
	return g.unheard
}
