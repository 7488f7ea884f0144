package railactors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// moving is a transport whose device has address 127.0.0.HOST; none while host is 0.
type moving struct {
	transport.Transport
	host   *atomic.Int32
	looked chan bool // in vain
}

func (m moving) Open(string) (transport.Device, error) {
	host := m.host.Load()
	if host == 0 {
		select {
		case m.looked <- true:
		default:
		}
		return nil, fmt.Errorf("%w: no address", transport.ErrAbsent)
	}
	d, err := m.Transport.Open(fmt.Sprintf("127.0.0.%d", host))
	return &movingDevice{d, m.host, host}, err
}

type movingDevice struct {
	transport.Device
	now  *atomic.Int32
	host int32
}

func (d *movingDevice) Dial(ctx context.Context, addr string) (transport.Conn, error) {
	if d.now.Load() != d.host {
		return nil, fmt.Errorf("%w: its address is gone", transport.ErrAbsent)
	}
	return d.Device.Dial(ctx, addr)
}

func (d *movingDevice) Accept() (transport.Conn, error) {
	for {
		c, err := d.Device.Accept()
		if err != nil || d.now.Load() == d.host {
			return c, err
		}
		c.Close()
	}
}

// Node a dials, node b is dialed and must tell a where.
func TestARailWhoseAddressChangesComesBack(t *testing.T) {
	for at, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			var host atomic.Int32
			host.Store(2)
			looked, ups := make(chan bool, 1), map[string]chan bool{}
			b := onLoopback(t, 2)
			defer b.close()
			b.tune = func(c *Config) {
				up := make(chan bool, 100)
				ups[c.Node] = up
				c.Watch = func(e PairEvent) {
					if e.Kind == PairUp && e.Rail == b.rails[1] {
						up <- true
					}
				}
				if c.Node == name {
					c.Rails[1].Transport = moving{c.Rails[1].Transport, &host, looked}
				}
			}
			n := b.start("a", "b")
			ab, ba := join(n[0], n[1])
			shown := func() RailStatus { return n[at].fabric.Rails()[1] }
			for _, next := range []int32{3, 3, 2} {
				<-ups["a"]
				<-ups["b"]
				host.Store(0)
				breakRail(ab, 1)
				<-looked
				if s := shown(); s.Up || !strings.Contains(s.Chosen, "its address is gone") {
					t.Errorf("status without an address: %+v", s)
				}
				host.Store(next)
				select { // it may have looked twice
				case <-looked:
				default:
				}
			}
			<-ups["a"]
			<-ups["b"]
			s := shown()
			if !s.Up || !strings.HasPrefix(s.Addr, "127.0.0.2:") || strings.Contains(s.Chosen, "gone") {
				t.Errorf("status %+v", s)
			}
			for seq := range uint64(4) {
				n[0].send(ab, seq+1, 1, 50_000, 0)
				n[1].send(ba, seq+1, 1, 50_000, 0)
			}
			n[0].expect("b", 4)
			n[1].expect("a", 4)
		})
	}
}

// An address of one node may come to another one: the first is missed on that rail alone.
func TestAnotherNodeAtAPeersAddressIsNoLoss(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		n := b.start("a", "b", "c")
		ab, ba := join(n[0], n[1])
		b.exchange(ab, ba, 1, 4, 1000)
		at := func(addr string) {
			ab.mu.Lock()
			ab.addrs[1] = addr
			ab.mu.Unlock()
		}
		at(n[2].fabric.Addresses()[1].Addr)
		breakRail(ab, 1)
		<-time.After(time.Minute)
		ab.mu.Lock()
		err := ab.attempts[1]
		ab.mu.Unlock()
		if cause := ab.Lost(); cause != nil || err == nil || err.Error() != `refused: node "b" is meant, this is node "c"` {
			t.Fatalf("lost: %v; last attempt: %v", cause, err)
		}
		b.exchange(ab, ba, 5, 4, 1000)
		at(n[1].fabric.Addresses()[1].Addr)
		<-time.After(time.Minute)
		for _, node := range n[:2] {
			if s := node.fabric.Rails()[1]; !s.Up {
				t.Errorf("node %s, with the address back: %+v", node.name, s)
			}
		}
		b.exchange(ab, ba, 9, 4, 1000)
	})
}

// unplugged is a transport whose devices say that their link is down.
type unplugged struct {
	transport.Transport
	told chan bool
}

func (u unplugged) Open(name string) (transport.Device, error) {
	d, err := u.Transport.Open(name)
	return &unpluggedDevice{d, u.told}, err
}

type unpluggedDevice struct {
	transport.Device
	told chan bool
}

func (d *unpluggedDevice) WatchLink(ctx context.Context, report func(up bool)) error {
	report(false)
	close(d.told)
	<-ctx.Done()
	return ctx.Err()
}

// Its address may be on another interface than the one that is watched.
func TestARailThatIsConnectedIsUpWhateverIsSaidOfItsLink(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := onLoopback(t, 1)
	defer b.close()
	told := make(chan bool)
	b.tune = func(c *Config) {
		if c.Node == "a" {
			c.Rails[0].Transport = unplugged{c.Rails[0].Transport, told}
		}
	}
	n := b.start("a", "b")
	<-told
	if s := n[0].fabric.Rails()[0]; s.Up {
		t.Errorf("status without a connection: %+v", s)
	}
	ab, ba := join(n[0], n[1])
	b.exchange(ab, ba, 1, 2, 1000)
	if s := n[0].fabric.Rails()[0]; !s.Up {
		t.Errorf("status with a connection: %+v", s)
	}
}

// Its device loses its address, and can't be opened at the next one.
func TestARailThatCannotMoveSaysWhyOnce(t *testing.T) {
	virtual(t, 2, func(b *bed, _ *mem.Network) {
		var gone atomic.Bool
		var count atomic.Int64
		b.tune = func(c *Config) {
			if c.Node == "a" {
				c.Rails[1].Transport = refusing{c.Rails[1].Transport, &gone,
					fmt.Errorf("%w: its address is gone", transport.ErrAbsent), errors.New("the port is taken")}
				c.Logger = slog.New(spoken{slog.DiscardHandler, "rail can't move", &count})
			}
		}
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		gone.Store(true)
		breakRail(ab, 1)
		<-time.After(10 * time.Second)
		if s := n[0].fabric.Rails()[1]; s.Up || !strings.Contains(s.Chosen, "its address is gone") ||
			!strings.Contains(s.Chosen, "the port is taken") {
			t.Errorf("status %+v", s)
		}
		if got := count.Load(); got != 1 {
			t.Errorf("%d lines in the log", got)
		}
		gone.Store(false)
		<-time.After(10 * time.Second)
		if s := n[0].fabric.Rails()[1]; !s.Up || strings.Contains(s.Chosen, "gone") {
			t.Errorf("status %+v", s)
		}
	})
}
