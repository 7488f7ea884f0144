package railactors

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
)

// rail is a device and what it did.
type rail struct {
	name      string
	transport transport.Transport
	sealed    bool                      // its connections tell who is at the other end
	selector  string                    // of the device
	absence   error                     // why it could not be opened at the start
	open      atomic.Pointer[opened]    // nil while the device is absent
	moving    sync.Mutex                // held while another device may take its place
	astray    atomic.Pointer[error]     // that its address is gone, as the last attempt to connect said
	cpus      []int                     // that its readers and writers are bound to; none: any
	pid       atomic.Pointer[actor.PID] // another one after a panic of the rail supervisor
	entrance  entrance                  // accepted connections whose Hello isn't in yet
	deaf      atomic.Bool               // the device accepts no more

	unplugged atomic.Bool // the system says that its link is down

	sent, received                                              trafficOfLanes
	framesSent, framesReceived, resent, resentBytes, reconnects atomic.Uint64
	linkDowns, silences, falseAlarms                            atomic.Uint64
}

func newRail(name string, t transport.Transport) *rail {
	return &rail{name: name, transport: t}
}

// RailStatus is what a rail of this node is and did.
type RailStatus struct {
	Name           string
	Protocol       string // "tcp", and "tcp+tls" where it is sealed
	Chosen         string // device, or why there is none; and that its address is gone
	Addr           string // where peers reach it; empty while the device is absent
	CPUs           []int  // cores that its readers and writers are bound to; none: any
	Up             bool   // it listens and is connected to some peer; with none, not known to be unplugged
	BytesSent      uint64 // payload of data frames, once for each time that it was sent
	BytesReceived  uint64
	Lanes          []LaneTraffic // that it carried something of, ascending
	FramesSent     uint64        // numbered ones
	FramesReceived uint64
	Resent         uint64 // frames that were sent again after a connection was lost
	ResentBytes    uint64 // payload of those of them that are data
	Reconnects     uint64 // connections after a pair's first one
	LinkDowns      uint64 // times that the system said the link is down
	Silences       uint64 // connections closed because the other host confirmed nothing for the rail timeout
	FalseAlarms    uint64 // of those, where the rail could be connected again at once
}

// Rails tells of this node's rails, ascending by name: the index is what a lane's number stands for.
// MemoryRail is none of them.
func (f *Fabric) Rails() []RailStatus { return f.statuses()[:f.Lanes()] }

// MemoryStatus tells of MemoryRail, if there is one.
func (f *Fabric) MemoryStatus() (s RailStatus, ok bool) {
	if f.memory < 0 {
		return s, false
	}
	return f.statuses()[f.memory], true
}

func (f *Fabric) statuses() []RailStatus {
	connected := make([]bool, len(f.rails))
	peers := f.snapshot()
	for _, p := range peers {
		p.mu.Lock()
		for r, c := range p.conns {
			connected[r] = connected[r] || c != nil
		}
		p.mu.Unlock()
	}
	status := make([]RailStatus, len(f.rails))
	for i, r := range f.rails {
		s := &status[i]
		*s = RailStatus{
			Name: r.name, Protocol: r.transport.Protocol(), Chosen: r.chosen(), Addr: r.addr(), CPUs: r.cpus,
			Up: r.device() != nil && !r.deaf.Load() &&
				(connected[i] || !r.unplugged.Load() && (len(peers) == 0 || i == f.memory)),
			Lanes:      f.lanes(r),
			FramesSent: r.framesSent.Load(), FramesReceived: r.framesReceived.Load(),
			Resent: r.resent.Load(), ResentBytes: r.resentBytes.Load(), Reconnects: r.reconnects.Load(),
			LinkDowns: r.linkDowns.Load(), Silences: r.silences.Load(), FalseAlarms: r.falseAlarms.Load(),
		}
		for _, l := range s.Lanes {
			s.BytesSent += l.BytesSent
			s.BytesReceived += l.BytesReceived
		}
	}
	return status
}

// Addresses are where this node listens on its rails, but MemoryRail.
func (f *Fabric) Addresses() (all []RailAddress) {
	for _, r := range f.rails[:f.Lanes()] {
		all = append(all, RailAddress{Name: r.name, Addr: r.addr()})
	}
	return all
}

// Addresses are where the remote node listens on its rails, as far as is known.
func (p *Peer) Addresses() (all []RailAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, addr := range p.addrs[:p.fabric.Lanes()] {
		all = append(all, RailAddress{Name: p.fabric.rails[i].name, Addr: addr})
	}
	return all
}

func (r *rail) countSent(fr *Frame, again bool) {
	r.framesSent.Add(1)
	if fr.Header.Kind == wire.KindData {
		r.sent.add(&fr.Header, len(fr.Payload))
	}
	if again {
		r.resent.Add(1)
		if fr.Header.Kind == wire.KindData {
			r.resentBytes.Add(uint64(len(fr.Payload)))
		}
	}
}

func (r *rail) countReceived(h *wire.Header) {
	r.framesReceived.Add(1)
	if h.Kind == wire.KindData {
		r.received.add(h, int(h.Length))
	}
}
