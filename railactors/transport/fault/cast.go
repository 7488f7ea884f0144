package fault

import (
	"errors"

	"github.com/polyrail/polyrail/railactors/transport"
)

// SendCasts is the wrapped device's. A cut rail takes nothing.
func (d *device) SendCasts(group uint64) (transport.CastSender, error) {
	c, ok := d.Device.(transport.Caster)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	s, err := c.SendCasts(group)
	if err != nil {
		return nil, err
	}
	return &castSender{CastSender: s, t: d.t}, nil
}

// ReceiveCasts is the wrapped device's, less what is lost.
func (d *device) ReceiveCasts(group uint64, addr string) (transport.CastReceiver, error) {
	c, ok := d.Device.(transport.Caster)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	r, err := c.ReceiveCasts(group, addr)
	if err != nil {
		return nil, err
	}
	return &castReceiver{CastReceiver: r, t: d.t}, nil
}

type castSender struct {
	transport.CastSender
	t *Transport
}

func (s *castSender) Send(p []byte) error {
	if s.t.loses() {
		return nil
	}
	return s.CastSender.Send(p)
}

type castReceiver struct {
	transport.CastReceiver
	t *Transport
}

func (r *castReceiver) Receive(p []byte) (int, error) {
	for {
		n, err := r.CastReceiver.Receive(p)
		if err != nil || !r.t.drops() {
			return n, err
		}
	}
}

// loses reports whether a rail that is cut, or stalled, swallows a datagram.
func (t *Transport) loses() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut || t.stalled {
		t.counters.CastsLost++
	}
	return t.cut || t.stalled
}

// drops reports whether a datagram that has come is lost.
func (t *Transport) drops() bool {
	if t.loses() {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counters.Casts++
	if t.castLoss == 0 || t.castRand.Float64() >= t.castLoss {
		return false
	}
	t.counters.CastsLost++
	return true
}
