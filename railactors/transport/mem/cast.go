package mem

import (
	"net"
	"sync"

	"github.com/polyrail/polyrail/railactors/transport"
)

// castBacklog is how many datagrams wait at a receiver; more are lost.
const castBacklog = 256

// castGroup is what a device sends to a group.
type castGroup struct {
	group uint64
	from  Addr
}

// SendCasts implements transport.Caster.
func (d *device) SendCasts(group uint64) (transport.CastSender, error) {
	return &castSender{device: d, to: castGroup{group, d.addr}}, nil
}

// ReceiveCasts implements transport.Caster.
func (d *device) ReceiveCasts(group uint64, addr string) (transport.CastReceiver, error) {
	r := &castReceiver{device: d, from: castGroup{group, Addr(addr)},
		queue: make(chan []byte, castBacklog), closed: make(chan struct{})}
	n := d.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.casts[r.from] == nil {
		n.casts[r.from] = make(map[*castReceiver]struct{})
	}
	n.casts[r.from][r] = struct{}{}
	return r, nil
}

// castSender implements transport.CastSender.
type castSender struct {
	device *device
	to     castGroup
}

// Send reaches who can be reached now: nothing waits for a Heal.
func (s *castSender) Send(p []byte) error {
	n := s.device.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.device.isClosed() {
		return opError("cast", s.device.addr, nil, net.ErrClosed)
	}
	if n.cut[s.device.link] || n.silenced[s.device.link] {
		return nil
	}
	datagram := append([]byte(nil), p...)
	for r := range n.casts[s.to] {
		if r.device.isClosed() || n.cut[r.device.link] || n.silenced[r.device.link] {
			continue
		}
		select {
		case r.queue <- datagram:
		default:
		}
	}
	return nil
}

func (s *castSender) Close() error { return nil }

// castReceiver implements transport.CastReceiver.
type castReceiver struct {
	device *device
	from   castGroup
	queue  chan []byte
	once   sync.Once
	closed chan struct{}
}

func (r *castReceiver) Receive(p []byte) (int, error) {
	select {
	case b := <-r.queue:
		return copy(p, b), nil
	case <-r.closed:
	case <-r.device.closed:
	}
	return 0, opError("receive", r.device.addr, r.from.from, net.ErrClosed)
}

func (r *castReceiver) Close() error {
	r.once.Do(func() {
		close(r.closed)
		n := r.device.network
		n.mu.Lock()
		defer n.mu.Unlock()
		if delete(n.casts[r.from], r); len(n.casts[r.from]) == 0 {
			delete(n.casts, r.from)
		}
	})
	return nil
}
