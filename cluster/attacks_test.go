package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/test/bubble"
)

// The tests in this file send what an attacker without a key can send, who knows the cluster's
// name.

// attacker is a host of the network that is no member.
type attacker struct {
	memberlist.NodeAwareTransport
	t testing.TB
}

func newAttacker(t testing.TB, network *memnet.Network, addr string) *attacker {
	t.Helper()
	h, err := network.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return &attacker{h, t}
}

// shout opens a stream to a member, says something and hears out what comes. Either side may end it.
func (a *attacker) shout(to string, text []byte) {
	a.t.Helper()
	c, err := a.DialTimeout(to, time.Second)
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(text) // it may be refused meanwhile
	_, _ = io.Copy(io.Discard, c)
}

// gossipOf is a message of memberlist's, as a packet or the beginning of a stream.
func gossipOf(label string, kind byte, values ...any) []byte {
	b := append([]byte{244, byte(len(label))}, label...)
	b = append(b, kind)
	e := codec.NewEncoderBytes(nil, new(codec.MsgpackHandle))
	for _, v := range values {
		var out []byte
		e.ResetBytes(&out)
		if err := e.Encode(v); err != nil {
			panic(err)
		}
		b = append(b, out...)
	}
	return b
}

func (a *attacker) send(to string, kind byte, v any) {
	a.t.Helper()
	if _, err := a.WriteTo(gossipOf("polyrail", kind, v), to); err != nil {
		a.t.Fatal(err)
	}
}

type claim struct {
	Incarnation uint32
	Node, From  string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Vsn         []uint8
}

// alive says that a process of another node is at an address.
func alive(node string, process uint64, incarnation uint32, addr string, intent byte) claim {
	ap := netip.MustParseAddrPort(addr)
	return claim{Incarnation: incarnation, Node: processName(node, process), Addr: ap.Addr().AsSlice(), Port: ap.Port(),
		Meta: encodeMeta(ProtocolVersion, process, intent, ""), Vsn: []uint8{1, 5, 2, 0, 0, 0}}
}

// packet is what one packet says.
type packet struct {
	kind  byte
	claim claim
}

// expelling are packets that say of node n2 what could end its membership.
func expelling() map[string]packet {
	const last = 1<<32 - 1
	accused := func(incarnation uint32, from string) claim {
		return claim{Incarnation: incarnation, Node: processName("n2", 7), From: from}
	}
	return map[string]packet{
		"dead in the last incarnation":      {msgDead, accused(last, "x")},
		"dead in the next incarnation":      {msgDead, accused(2, "x")},
		"left":                              {msgDead, accused(1, processName("n2", 7))},
		"suspected in the last incarnation": {msgSuspect, accused(last, "x")},
		"alive in the last incarnation":     {msgAlive, alive("n2", 7, last, "10.0.0.2:7946", staying)},
		"alive at another address":          {msgAlive, alive("n2", 7, 2, "10.0.0.1:9999", staying)},
		"its name, and it was first":        {msgAlive, alive("n2", 1, 1, "10.0.0.9:7946", staying)},
		"it leaves":                         {msgAlive, alive("n2", 7, 2, "10.0.0.2:7946", leaving)},
	}
}

// What one packet says of node n2, to all, must cost n2 nothing for long.
func TestAPacketExpelsNobody(t *testing.T) {
	for name, packet := range expelling() {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				network := memnet.New()
				peers := startAll(t, network, 3)
				a := newAttacker(t, network, "10.0.0.9:7946")
				done := make(chan struct{})
				defer close(done)
				go answerPings(a, done)
				pass(settleTime + time.Second)
				for range 3 {
					for i := range peers {
						a.send(fmt.Sprintf("10.0.0.%d:7946", i+1), packet.kind, packet.claim)
					}
					pass(time.Second)
				}
				pass(10 * time.Second)
				for _, p := range peers {
					p.expelled(t, name == "it leaves")
				}
				// A node that dies is still found.
				closeAll(t, peers[1])
				peers[0].expect(t, "n2#7 failed")
				closeAll(t, peers[0], peers[2])
				a.Shutdown()
			})
		})
	}
}

// expelled fails if a node is no member any more, or was none for a moment unless it came back.
func (p *peer) expelled(t *testing.T, back bool) {
	t.Helper()
	if got := nodes(p.Gossip); got != "n1 n2 n3" || p.Err() != nil {
		t.Errorf("members %s, error %v", got, p.Err())
	}
	for _, e := range p.events {
		if !back && (strings.Contains(e, "failed") || strings.Contains(e, "left")) {
			t.Errorf("it was told that %s", e)
		}
	}
}

// answerPings answers in whatever name it is asked.
func answerPings(a *attacker, done <-chan struct{}) {
	for {
		var p *memberlist.Packet
		select {
		case p = <-a.PacketCh():
		case <-done:
			return
		}
		b, _, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf)
		if err != nil || len(b) == 0 || b[0] != msgPing {
			continue
		}
		var ping struct{ SeqNo uint32 }
		if codec.NewDecoderBytes(b[1:], new(codec.MsgpackHandle)).Decode(&ping) == nil {
			_, _ = a.WriteTo(gossipOf("polyrail", msgAck, struct{ SeqNo uint32 }{ping.SeqNo}), p.From.String())
		}
	}
}

// withstand attacks three peers that know each other. None of them may be expelled.
func withstand(t *testing.T, attack func(peers []peer, a *attacker)) {
	t.Helper()
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 3)
		a := newAttacker(t, network, "10.0.0.9:7946")
		pass(settleTime + time.Second)
		attack(peers, a)
		pass(10 * time.Second)
		for _, p := range peers {
			p.expelled(t, false)
		}
		closeAll(t, peers...)
		a.Shutdown()
	})
}

// asArray is a state without the names of its fields: memberlist reads it by their order.
func asArray(s nodeState) []any {
	return []any{s.Name, s.Addr, s.Port, s.Meta, s.Incarnation, s.State, s.Vsn}
}

// The same in an exchange of states, which is a stream.
func TestAStreamExpelsNobody(t *testing.T) {
	for name, s := range map[string]nodeState{
		"left":                      {Incarnation: 1, State: memberlist.StateLeft},
		"dead, the last time":       {Incarnation: 1<<32 - 1, State: memberlist.StateDead},
		"alive, the last time":      {Incarnation: 1<<32 - 1, State: memberlist.StateAlive},
		"dead, and nothing else is": {Incarnation: 1, State: memberlist.StateDead},
	} {
		honest := alive("n2", 7, 1, "10.0.0.2:7946", staying)
		s.Name, s.Addr, s.Port, s.Meta, s.Vsn = honest.Node, honest.Addr, honest.Port, honest.Meta, honest.Vsn
		bare := s // "left" has no address to compare
		bare.Addr, bare.Port = nil, 0
		for form, state := range map[string]any{"map": s, "array": asArray(s), "array without an address": asArray(bare)} {
			t.Run(name+", as "+form, func(t *testing.T) {
				withstand(t, func(peers []peer, a *attacker) {
					for i := range peers {
						header := struct {
							Nodes, UserStateLen int
							Join                bool
						}{Nodes: 1}
						a.shout(fmt.Sprintf("10.0.0.%d:7946", i+1), gossipOf("polyrail", msgPushPull, header, state))
					}
				})
			})
		}
	}
}

// Otherwise guard looks at other values than memberlist does.
func TestAStateIsReadAsMemberlistReadsIt(t *testing.T) {
	honest := alive("n2", 7, 3, "10.0.0.2:7946", staying)
	said := nodeState{Name: honest.Node, Addr: honest.Addr, Port: honest.Port, Meta: honest.Meta, Incarnation: 3,
		State: memberlist.StateSuspect, Vsn: honest.Vsn}
	for form, v := range map[string]any{"map": said, "array": asArray(said)} {
		var got nodeState
		if err := decode(bytes.NewReader(gossipOf("", msgPushPull, v)[3:]), &got); err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if !reflect.DeepEqual(got, said) {
			t.Errorf("%s: got %+v, want %+v", form, got, said)
		}
	}
}

func TestCompressedMessagesAreNotUnpacked(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 2)
		a := newAttacker(t, network, "10.0.0.9:7946")
		const compressed = 9
		bomb := struct {
			Algo int
			Buf  []byte
		}{0, make([]byte, 1000)}
		before := peers[0].guard.refused.Load()
		a.send(seed, compressed, bomb)
		c, err := a.DialTimeout(seed, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(gossipOf("polyrail", compressed, bomb)[:15]) // closed after the type
		pass(time.Second)
		if n := peers[0].guard.refused.Load() - before; n != 2 {
			t.Errorf("%d of 2 were refused", n)
		}
		c.Close()
		closeAll(t, peers...)
		a.Shutdown()
	})
}

// Members are made up whose hosts never answer: whoever lives is served no later for that.
// Whoever claims a long name in a ping is not heard out.
func TestALongPingIsNotRead(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 1)
		a := newAttacker(t, network, "10.0.0.9:7946")
		for _, kind := range []byte{msgPing, msgAck, msgError} {
			c, err := a.DialTimeout(seed, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			begin := append(gossipOf("polyrail", kind), 0x81, 0xa4, 'N', 'o', 'd', 'e', 0xdb, 0x7f, 0xff, 0xff, 0xff)
			_, err = c.Write(begin)
			taken := 0
			for n := 0; err == nil && taken < 2*maxStateBytes; taken += n {
				n, err = c.Write(make([]byte, 4096))
			}
			if taken > 2*maxShortBytes {
				t.Errorf("%d bytes of a message of type %d were read", taken, kind)
			}
			c.Close()
		}
		closeAll(t, peers...)
		a.Shutdown()
	})
}

func TestMadeUpMembersHoldUpNobody(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startAll(t, network, 2)
		var silent []string
		for i := range 400 {
			addr := fmt.Sprintf("10.1.%d.%d:7946", i/200, 1+i%200)
			silent = append(silent, addr)
			peers[0].roster.up(Member{Node: fmt.Sprint("made-up", i), Incarnation: 1, Version: ProtocolVersion, Addr: addr})
			if h, err := network.Listen(addr); err != nil {
				t.Fatal(err)
			} else {
				defer h.Shutdown()
			}
		}
		network.Partition(silent)
		peers[0].expect(t, "made-up399#1 joined")
		for round := range 3 { // announcements are repeated
			began := time.Now()
			for i := range 400 {
				_ = peers[0].Send(fmt.Sprint("made-up", i), RendezvousOf(&view.Withdraw{Name: "x", Ask: 1}, 7))
			}
			if err := peers[0].Send("n2", RendezvousOf(&view.Withdraw{Name: "x", Ask: 1}, 7)); err != nil {
				t.Fatal(err)
			}
			peers[1].until(t, "the message", func() bool { return len(peers[1].msgs) == round+1 })
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("the message took %v", took)
			}
			pass(2 * time.Second)
		}
		pass(30 * time.Second)
		closeAll(t, peers...)
	})
}

func TestOpenStreamsAreLimitedAndTheOldestGoes(t *testing.T) {
	limited(t, maxStreamsPerHost, nil, nil)
}

// Whoever says that a stream will be long has memory taken for it, before it says more.
func TestLongStreamsAreFew(t *testing.T) {
	type message struct{ UserMsgLen int }
	type states struct{ Nodes, UserStateLen int }
	limited(t, maxLongPerHost, gossipOf("polyrail", msgUser, message{longStream + 1}), nil)
	limited(t, maxLongPerHost, gossipOf("polyrail", msgPushPull, states{maxStateNodes, 0}), nil)
	limited(t, maxStreamsPerHost, gossipOf("polyrail", msgUser, message{longStream}), nil)
	var f keyfile
	f.set("a")
	length := binary.BigEndian.AppendUint32([]byte{msgSealed}, longStream+1)
	limited(t, maxLongPerHost, labelled("polyrail", append(length, sealVersion)), f.read)
}

// A few states that are long are no reason to read on.
func TestStatesOfFewNodesAreShort(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		p := start(t, config(network, "n1", 7, seed))
		a := newAttacker(t, network, "10.0.0.9:7946")
		for refused, length := range map[uint64]int{0: longStream / 2, 1: 2 * longStream} {
			long := nodeState{Name: "n9#7", Meta: make([]byte, length), State: memberlist.StateSuspect}
			before := p.guard.refused.Load()
			a.shout(seed, gossipOf("polyrail", msgPushPull, struct{ Nodes, UserStateLen int }{1, 0}, long))
			if n := p.guard.refused.Load() - before; n != refused {
				t.Errorf("%d bytes: refused %d times, want %d", length, n, refused)
			}
		}
		closeAll(t, p)
		a.Shutdown()
	})
}

// limited opens ten streams more than there may be of one host, each of which begins with a text.
func limited(t *testing.T, most int, text []byte, keys func() ([][]byte, error)) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		c := config(network, "n1", 7, seed)
		c.StreamTimeout, c.Keys = time.Hour, keys
		p := start(t, c)
		a := newAttacker(t, network, "10.0.0.9:7946")
		var conns []net.Conn
		for range most + 10 {
			c, err := a.DialTimeout(seed, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(text)
			conns = append(conns, c)
			pass(time.Millisecond)
		}
		for i, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			timeout := false
			if e, ok := err.(net.Error); ok {
				timeout = e.Timeout()
			}
			if open := i >= 10; open != timeout {
				t.Errorf("stream %d: %v", i, err)
			}
			c.Close()
		}
		closeAll(t, p)
		a.Shutdown()
	})
}

func FuzzGuard(f *testing.F) {
	f.Add(gossipOf("polyrail", msgAlive, alive("n2", 7, 1, "10.0.0.2:7946", staying)))
	f.Add(gossipOf("polyrail", msgDead, claim{Incarnation: 1, Node: "n2#7", From: "x"}))
	f.Add(gossipOf("polyrail", msgCompound, 1))
	f.Add(gossipOf("polyrail", msgPushPull, struct{ Nodes int }{1 << 30}))
	f.Add(sealedStreamOf(key('a'), "polyrail", []byte("text")))
	f.Add(labelled("polyrail", seal(key('a'), "polyrail", []byte("text"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range []bool{false, true} {
			g := &guard{label: "polyrail", sealed: sealed, levels: newLevels("n1#7", time.Time{})}
			if out, err := g.packet(bytes.Clone(b), time.Time{}); err == nil && len(out) == 0 {
				t.Error("nothing is left, and no error")
			}
			near, far := net.Pipe()
			go func() {
				_, _ = far.Write(b)
				far.Close()
			}()
			s := &guardedStream{Conn: near, guard: g, label: "polyrail"}
			if err := s.check(time.Time{}); err == nil && s.head.Len() == 0 {
				t.Error("a stream without a type")
			}
			near.Close()
		}
	})
}
