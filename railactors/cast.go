package railactors

import (
	"errors"
	"fmt"

	"github.com/polyrail/polyrail/railactors/transport"
)

// This file opens the ends of what a node sends to many at once (transport.Caster). The errors match
// errors.ErrUnsupported where a rail has no such thing.

// SendCasts opens this node's end for what it sends to a group on a rail.
func (f *Fabric) SendCasts(rail int, group uint64) (transport.CastSender, error) {
	c, err := f.caster(rail)
	if err != nil {
		return nil, err
	}
	return c.SendCasts(group)
}

// ReceiveCasts opens this node's end for what another one sends to a group on a rail.
func (p *Peer) ReceiveCasts(rail int, group uint64) (transport.CastReceiver, error) {
	c, err := p.fabric.caster(rail)
	if err != nil {
		return nil, err
	}
	addr, err := p.reachable(rail)
	if err != nil {
		return nil, err
	}
	return c.ReceiveCasts(group, addr)
}

func (f *Fabric) caster(rail int) (transport.Caster, error) {
	c, ok := f.rails[rail].device().(transport.Caster)
	if !ok {
		return nil, fmt.Errorf("rail %q carries no datagrams: %w", f.rails[rail].name, errors.ErrUnsupported)
	}
	return c, nil
}
