package railactors

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/bubble"
)

// slow takes as long over each frame as a caller may take over three of them. It counts those that a
// caller handles itself.
type slow struct {
	*arrival
	polled *atomic.Int32
}

func (s slow) Arrived(tag uint64, b *Batch) {
	for began := time.Now(); time.Since(began) < longestTake/3; {
	}
	if polls() {
		s.polled.Add(1)
	}
	s.arrival.Arrived(tag, b)
}

// polls reports whether the goroutine is within Peer.Poll. What a Poll leaves to another goroutine is
// within a function of its own there.
func polls() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for f, more := frames.Next(); more; f, more = frames.Next() {
		if strings.HasSuffix(f.Function, "(*Peer).Poll") {
			return true
		}
	}
	return false
}

// A caller that looks for its own frames is not kept by a stream of others', and what it leaves is
// handled though nothing more arrives.
func TestAPollThatFindsAStreamLeavesMostOfIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := onLoopback(t, 1)
	defer b.close()
	n := b.start("a", "b")
	var polled atomic.Int32
	n[1].land = func(_ *Peer, h *wire.Header) (Landing, error) {
		a := &arrival{node: n[1], header: *h, dst: make([]byte, h.Length)}
		return Landing{Dst: a.dst, Receiver: slow{a, &polled}}, nil
	}
	ab, ba := join(n[0], n[1])
	const frames = 50
	ba.Attend(0)
	for seq := range uint64(frames) {
		n[0].send(ab, seq+1, 0, 1000, 0)
	}
	here := func() int {
		n[1].mu.Lock()
		defer n[1].mu.Unlock()
		return len(n[1].frames)
	}
	// The first Poll may find an acknowledgement alone. A reader that was awake takes all.
	for polled.Load() == 0 && here() < frames {
		ba.Poll(0)
		runtime.Gosched()
	}
	ba.Leave(0)
	if taken := polled.Load(); taken > 20 {
		t.Errorf("one Poll took %d frames of %d", taken, frames)
	}
	n[1].expect("a", frames)
}

// A caller that polls is not kept by a frame whose rest doesn't come, whoever's it is and wherever it
// stops. The memory of such a frame can be revoked, and what comes later is handled.
func TestAPollReturnsInTheMiddleOfAFrame(t *testing.T) {
	const length, first = 256 << 10, 10_000
	for name, stops := range map[string]struct {
		after  int // bytes
		kind   wire.Kind
		revoke bool
	}{
		"in the header":        {wire.Size / 2, wire.KindData, false},
		"in data":              {wire.Size + first, wire.KindData, false},
		"in data, revoked":     {wire.Size + first, wire.KindData, true},
		"in a control message": {wire.Size + 10, wire.KindControl, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, c, p, generation := acquainted(t)
			into := &arrival{node: n, dst: make([]byte, length), header: wire.Header{Seq: 1}}
			n.land = func(_ *Peer, h *wire.Header) (Landing, error) {
				if h.Seq == 1 {
					return Landing{Dst: into.dst, Receiver: into}, nil
				}
				return Landing{Dst: make([]byte, h.Length), Receiver: &arrival{node: n, header: *h}}, nil
			}
			payload := make([]byte, length)
			if stops.kind == wire.KindControl {
				payload = marshal(t, &messages.Control{Comm: 1, Body: &messages.Control_Abort{
					Abort: &messages.Abort{Reason: strings.Repeat("x", 1000)}}})
			}
			h := wire.Header{Kind: stops.kind, Number: 1, Comm: 1, Seq: 1, Count: 1, Desc: dataDescriptor, Generation: generation}
			stream := encode(h, payload)
			h.Kind, h.Number, h.Seq = wire.KindData, 2, 2
			stream = append(stream, encode(h, make([]byte, 8))...)
			p.Attend(0)
			if _, err := c.Write(stream[:stops.after]); err != nil {
				t.Fatal(err)
			}
			for !p.Poll(0) {
				runtime.Gosched()
			}
			p.Leave(0)
			if err := p.Lost(); err != nil {
				t.Fatalf("Poll returned when the node was lost: %v", err)
			}
			if stops.revoke {
				n.fabric.Revoke(into)
				n.await("the frame to be torn", func() bool { return len(n.torn) == 1 && errors.Is(n.torn[0], ErrRevoked) })
			}
			if _, err := c.Write(stream[stops.after:]); err != nil {
				t.Fatal(err)
			}
			n.await("what follows", func() bool {
				return n.arrivals[2] == 1 && (n.arrivals[1] == 1) == (stops.kind == wire.KindData && !stops.revoke)
			})
		})
	}
}

// acquainted is node b over loopback, and a stranger's connection that it takes for its peer a's.
func acquainted(t *testing.T) (n *testNode, c transport.Conn, p *Peer, generation uint8) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	b := onLoopback(t, 1)
	b.also(func(c *Config) { c.RankTimeout = time.Minute }) // a stranger says no more than is asked
	t.Cleanup(b.close)
	n = b.start("b")[0]
	c = dialOver(t, tcp.New(tcp.Options{}), "127.0.0.1", n)
	t.Cleanup(func() { c.Close() })
	hello := &messages.Hello{Version: wire.Version, Cluster: "test", Node: "a", Incarnation: 1, To: "b",
		Rail: n.fabric.RailName(0), Generation: 1, Session: 1, CreditBytes: 1 << 20}
	p, err := n.fabric.Connect(Remote{Node: "a", Incarnation: 1,
		Rails: []RailAddress{{n.fabric.RailName(0), c.LocalAddr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeMessage(c, wire.KindHello, hello); err != nil {
		t.Fatal(err)
	}
	answer, err := readHello(c)
	if err != nil {
		t.Fatal(err)
	}
	for !p.Pollable(0) {
		runtime.Gosched()
	}
	return n, c, p, uint8(answer.Generation)
}

// What a reader meets costs the connection, whoever reads it: its own goroutine, or a caller that polls.
func TestWhatIsWrongOnASocketClosesIt(t *testing.T) {
	for reason, wrong := range map[string]func(n *testNode, h *wire.Header){
		"frame number 2, want 1": func(_ *testNode, h *wire.Header) { h.Number = 2 },
		"reader panicked": func(n *testNode, _ *wire.Header) {
			n.land = func(*Peer, *wire.Header) (Landing, error) { panic("the operations' side") }
		},
		"read: ": func(_ *testNode, h *wire.Header) { h.Kind = 0 }, // the end, or a reset
	} {
		for _, polled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, polled %v", reason, polled), func(t *testing.T) {
				n, c, p, generation := acquainted(t)
				connection := p.pollable[0].Load()
				h := wire.Header{Kind: wire.KindData, Number: 1, Generation: generation, Seq: 1, Count: 1, Desc: dataDescriptor}
				wrong(n, &h)
				var header [wire.Size]byte
				h.Encode(header[:])
				if polled {
					p.Attend(0)
					defer p.Leave(0)
				}
				if h.Kind == 0 {
					c.Close()
				} else if _, err := c.Write(header[:]); err != nil {
					t.Fatal(err)
				}
				for p.Pollable(0) {
					if polled {
						p.Poll(0)
					}
					runtime.Gosched()
				}
				if err, _ := connection.reason(); !strings.Contains(err.Error(), reason) {
					t.Errorf("it was closed since %v", err)
				}
			})
		}
	}
}

// What a Poll leaves is handled though nothing more comes and nobody polls, while the rail is hushed.
// What is wrong there closes the connection.
func TestWhatAPollLeavesIsHandledToItsEnd(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrong %v", wrong), func(t *testing.T) {
			n, c, p, generation := acquainted(t)
			connection := p.pollable[0].Load()
			var polled atomic.Int32
			n.land = func(_ *Peer, h *wire.Header) (Landing, error) {
				return Landing{Dst: make([]byte, h.Length), Receiver: slow{&arrival{node: n, header: *h}, &polled}}, nil
			}
			const frames = 20
			var stream []byte
			h := wire.Header{Kind: wire.KindData, Count: 1, Generation: generation, Desc: dataDescriptor}
			for i := range uint64(frames) {
				h.Number, h.Seq = i+1, i+1
				if wrong && i == frames-1 {
					h.Number++
				}
				stream = append(stream, encode(h, make([]byte, 8))...)
			}
			p.Attend(0)
			defer p.Leave(0)
			if _, err := c.Write(stream); err != nil {
				t.Fatal(err)
			}
			for !p.Poll(0) {
				runtime.Gosched()
			}
			n.await("the rest", func() bool {
				return n.arrivals[frames] == 1 || len(n.arrivals) == frames-1 && !p.Pollable(0) || n.lost["a"] != nil
			})
			err, _ := connection.reason()
			if wrong && (err == nil || !strings.Contains(err.Error(), "want 20")) || !wrong && err != nil {
				t.Errorf("the connection was closed since %v", err)
			}
		})
	}
}

// Who comes or leaves while another one has the turn leaves the reader to that one. A rail that was left
// is woken when somebody listens, and when it is quiet no more.
func TestWhoeverHasTheTurnHushesTheReader(t *testing.T) {
	n, _, p, _ := acquainted(t)
	f, r := n.fabric, p.pollable[0].Load().reader
	hushed := func(when string, want bool) {
		t.Helper()
		if got := r.hushed.Load(); got != want {
			t.Errorf("%s: hushed %v", when, got)
		}
	}
	f.Listening(1) // nothing stays quiet
	r.turn.Lock()
	p.Attend(0)
	r.yield()
	hushed("somebody came", true)
	r.turn.Lock()
	p.Leave(0)
	r.yield()
	hushed("all have left", false)
	f.Listening(-1)
	for _, wake := range []func(){
		func() { f.Listening(1) },
		func() { f.quiet.wake(func(*lingering) bool { return true }) },
	} {
		p.Attend(0)
		hushed("somebody came", true)
		p.Leave(0)
		wake()
		hushed("it was woken", false)
		f.quiet.listeners.Store(0)
	}
}

// A rail is quiet for a moment after it was left, each time.
func TestARailThatWasLeftIsQuietForAMoment(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &Peer{fabric: &Fabric{}, pollable: make([]atomic.Pointer[connection], 2), attended: make([]atomic.Int32, 2),
			quiets: make([]atomic.Bool, 2), left: make([]atomic.Bool, 2)}
		for range 3 {
			for rail := range 2 {
				p.Attend(rail)
				p.Leave(rail)
				if !p.quiets[rail].Load() {
					t.Errorf("rail %d is not quiet when it was left", rail)
				}
			}
			<-time.After(3 * lingerTime)
			if p.quiets[0].Load() || p.quiets[1].Load() {
				t.Fatal("rails stay quiet that nobody comes back to")
			}
		}
	})
}

// A caller that comes to a connection that fails meanwhile reads nothing there.
func TestAPollLeavesAConnectionThatFailed(t *testing.T) {
	n, c, p, generation := acquainted(t)
	connection := p.pollable[0].Load()
	open := func(is bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		connection.open = is
	}
	p.Attend(0)
	defer p.Leave(0)
	open(false) // it fails after Poll has found it
	defer open(true)
	h := wire.Header{Kind: wire.KindData, Number: 1, Seq: 1, Count: 1, Generation: generation, Desc: dataDescriptor}
	if _, err := c.Write(encode(h, make([]byte, 8))); err != nil {
		t.Fatal(err)
	}
	for found := false; !found; {
		if p.Poll(0) {
			t.Fatal("it was read")
		}
		connection.reader.turn.Lock()
		found = connection.conn.Buffered() > 0
		connection.reader.turn.Unlock()
	}
	if p.Poll(0) {
		t.Error("it was read")
	}
	open(true)
	p.Poll(0)
	n.await("the frame", func() bool { return n.arrivals[1] == 1 })
}
