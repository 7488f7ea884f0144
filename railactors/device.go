package railactors

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/reminder"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/secure"
)

// This file opens the rails' devices: at the start, and later those that are absent then, or whose
// address changes. An interface that is down must not keep a node from using its other ones.

const (
	reopenAfter  = time.Second // how long an absent device is left alone
	maxAddrBytes = 256
)

var (
	errAbsentHere  = errors.New("this node's device is absent")
	errAbsentThere = errors.New("its device is absent")
)

// opened is a device, so that it can be set atomically.
type opened struct{ transport.Device }

// device is the rail's; nil while it is absent.
func (r *rail) device() transport.Device {
	if o := r.open.Load(); o != nil {
		return o.Device
	}
	return nil
}

// addr is where peers reach this node on the rail; empty while its device is absent.
func (r *rail) addr() string {
	if d := r.device(); d != nil {
		return d.Addr()
	}
	return ""
}

// chosen says which device it is, or why there is none.
func (r *rail) chosen() string {
	if d := r.device(); d != nil {
		if why := r.astray.Load(); why != nil {
			return fmt.Sprintf("%s (%v)", d.Chosen(), *why)
		}
		return d.Chosen()
	}
	return fmt.Sprintf("none (%v)", r.absence)
}

// openDevices opens what is there. It is an error if nothing is, or if what is there can't be used.
func (f *Fabric) openDevices(rails []RailConfig) error {
	var absent []error
	for _, rc := range rails {
		r := newRail(rc.Name, rc.Transport)
		r.selector, r.cpus = rc.Device, rc.CPUs
		switch {
		case f.cfg.Keys != nil && !rc.Plain:
			r.transport, r.sealed = secure.Wrap(rc.Transport, f.cfg.Keys.Current), true
		case f.cfg.Integrity:
			r.transport = secure.Check(rc.Transport)
		}
		f.rails = append(f.rails, r)
		device, err := r.transport.Open(rc.Device)
		if err == nil {
			r.open.Store(&opened{device})
			f.log.Info("rail opened", "rail", rc.Name, "protocol", r.transport.Protocol(),
				"device", device.Chosen(), "addr", device.Addr())
			continue
		}
		r.absence = err
		err = &fault.RailError{Rail: rc.Name, Node: f.cfg.Node, Err: err}
		if !errors.Is(err, transport.ErrAbsent) {
			return err
		}
		absent = append(absent, err)
	}
	if len(absent) == len(f.rails) {
		return errors.Join(absent...)
	}
	for _, err := range absent {
		f.log.Warn("rail is absent, going on without it", "error", err)
	}
	return nil
}

// openMemory opens the rail within the host. What keeps it closed is no error: the other rails carry
// what it would have.
func (f *Fabric) openMemory() {
	if f.cfg.Memory == nil {
		return
	}
	device, err := f.cfg.Memory.Open("")
	if err != nil {
		f.log.Warn("no memory is shared with other processes", "error", err)
		return
	}
	r := newRail(MemoryRail, f.cfg.Memory)
	r.open.Store(&opened{device})
	f.memory = len(f.rails)
	f.openBoard(device)
	f.rails = append(f.rails, r)
}

// serve runs a rail: when its device is there, it is watched and listened on, and so is one that
// takes its place. It lives as long as the fabric.
func (f *Fabric) serve(i int) {
	r := f.rails[i]
	if r.device() == nil && !f.reopen(i) {
		return
	}
	for {
		device := r.device()
		ctx, cancel := context.WithCancel(f.ctx)
		var watch sync.WaitGroup
		watch.Go(func() { f.watchLink(ctx, i, device) })
		f.listen(i, device)
		cancel()
		watch.Wait()
		if r.device() == device {
			r.deaf.Store(true)
			return
		}
	}
}

// strayed takes the news that a device's address is gone. If the rail's selector finds another
// address of the family, a device there takes its place. Otherwise the old one stays: its address
// may come back, and the peers know that one.
func (f *Fabric) strayed(i int, old transport.Device, why error) {
	r := f.rails[i]
	r.moving.Lock()
	defer r.moving.Unlock()
	if r.device() != old {
		return
	}
	said := r.astray.Load()
	if said == nil {
		r.astray.Store(&why)
		f.log.Warn("rail lost its address", "rail", r.name, "error", why)
	}
	device, err := r.transport.Open(r.selector)
	if err != nil { // the next attempt to connect looks again
		keeps := why
		if !errors.Is(err, transport.ErrAbsent) {
			keeps = fmt.Errorf("%w, and the one that there is can't be used: %w", why, err)
			if said == nil || (*said).Error() != keeps.Error() {
				f.log.Warn("rail can't move", "rail", r.name, "error", keeps)
			}
		}
		r.astray.Store(&keeps)
		return
	}
	if !elsewhere(old.Addr(), device.Addr()) {
		device.Close()
		return
	}
	r.astray.Store(nil)
	f.came(i, device)
	old.Close() // ends listen
}

// elsewhere reports whether an address is another one than that of a device, and of its family.
func elsewhere(old, addr string) bool {
	was, err := netip.ParseAddrPort(old)
	is, errIs := netip.ParseAddrPort(addr)
	return err == nil && errIs == nil && was.Addr() != is.Addr() && was.Addr().Is4() == is.Addr().Is4()
}

// reopen tries until an absent device can be opened. False if Close came first.
func (f *Fabric) reopen(i int) bool {
	r := f.rails[i]
	var said reminder.Reminders
	said.Due(r.absence.Error(), time.Now()) // openDevices has told it
	timer := time.NewTimer(reopenAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-f.done:
			return false
		}
		device, err := r.transport.Open(r.selector)
		if err == nil {
			return f.came(i, device)
		}
		if said.Due(err.Error(), time.Now()) {
			f.log.Warn("rail is absent still", "rail", r.name, "error", err)
		}
		timer.Reset(reopenAfter)
	}
}

// came takes a device in that was absent or elsewhere, and tells the peers where it is.
func (f *Fabric) came(i int, device transport.Device) bool {
	r := f.rails[i]
	r.open.Store(&opened{device})
	if f.ctx.Err() != nil { // Close has closed the devices, maybe without this one
		f.closeDevices()
		return false
	}
	f.log.Info("rail is there", "rail", r.name, "device", device.Chosen(), "addr", device.Addr())
	f.mu.Lock()
	if !slices.Contains(f.late, i) {
		f.late = append(f.late, i)
	}
	f.mu.Unlock()
	for _, p := range f.snapshot() {
		p.tellOpened([]int{i})
		p.tellPair(i, &railBack{fresh: true})
	}
	return true
}

// tellOpened tells the remote node where this one is reached on rails whose devices were absent, or
// elsewhere, at the start.
func (p *Peer) tellOpened(rails []int) {
	if !p.Awake() { // rouse tells it
		return
	}
	fx := newEffects()
	p.mu.Lock()
	for _, i := range rails {
		r := p.fabric.rails[i]
		payload, err := proto.Marshal(&messages.Control{Body: &messages.Control_RailOpened{
			RailOpened: &messages.RailOpened{Rail: r.name, Addr: r.addr()}}})
		if err == nil && p.cause == nil {
			p.sendAhead(0, wire.Header{Kind: wire.KindControl}, payload, fx)
		}
	}
	p.unlock(fx)
}

// opened takes what the remote node says of its rail. What can't be is left alone: the frame would
// only come again.
func (p *Peer) opened(m *messages.RailOpened) {
	rail := p.fabric.RailIndex(m.GetRail())
	if rail < 0 || rail == p.fabric.memory || m.GetAddr() == "" || len(m.GetAddr()) > maxAddrBytes {
		p.fabric.log.Warn("a node opens a rail that can't be", "peer", p.node,
			"rail", clip(m.GetRail()), "addr", clip(m.GetAddr()))
		return
	}
	p.mu.Lock()
	p.addrs[rail] = m.GetAddr()
	p.mu.Unlock()
	p.tellPair(rail, &railBack{fresh: true})
}

// learn takes addresses that were unknown so far, as the rendezvous told of them. It reports whether
// one of them is that of another rail to the node. The caller holds mu.
func (p *Peer) learn(addrs []string) (another bool) {
	for i, a := range addrs {
		if p.addrs[i] == "" {
			p.addrs[i] = a
		}
	}
	if m := p.fabric.memory; m >= 0 && p.addrs[m] != "" && !p.reach.Has(m) {
		p.reach.Add(m)
		return true
	}
	return false
}

// reachable is the address to dial on a rail, or why there is none.
func (p *Peer) reachable(rail int) (addr string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch addr = p.addrs[rail]; {
	case p.fabric.rails[rail].device() == nil:
		return "", errAbsentHere
	case addr == "":
		return "", errAbsentThere
	}
	return addr, nil
}
