package cluster

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/test/bubble"
)

// The tests in this file are about gossip that has keys: what those say that have none, those that
// have another cluster's, and those that have gossip's key and no certificate.

// seal seals what follows a label as memberlist does.
func seal(k []byte, label string, text []byte) []byte {
	block, err := aes.NewCipher(k)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce) // never fails
	return gcm.Seal(append([]byte{sealVersion}, nonce...), nonce, text, []byte(label))
}

// labelled is what follows a label, after that label.
func labelled(label string, b []byte) []byte {
	return append(append([]byte{244, byte(len(label))}, label...), b...)
}

// unlabelled takes off the label of gossipOf.
func unlabelled(b []byte) []byte { return b[2+int(b[1]):] }

// sealedStreamOf is a message as the beginning of a sealed stream.
func sealedStreamOf(k []byte, label string, text []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{msgSealed}, uint32(leastSealed-1+len(text)))
	return labelled(label, append(head, seal(k, string(head)+label, text)...))
}

// outsiders say a message as those do who have no key of the cluster.
var outsiders = map[string]struct{ packet, stream func(text []byte) []byte }{
	"no key": {
		func(text []byte) []byte { return labelled("polyrail", text) },
		func(text []byte) []byte { return labelled("polyrail", text) }},
	"another key": {
		func(text []byte) []byte { return labelled("polyrail", seal(key('x'), "polyrail", text)) },
		func(text []byte) []byte { return sealedStreamOf(key('x'), "polyrail", text) }},
	"another cluster with the same key": {
		func(text []byte) []byte { return labelled("other", seal(key('a'), "other", text)) },
		func(text []byte) []byte { return sealedStreamOf(key('a'), "other", text) }},
	"what another cluster has sealed": {
		func(text []byte) []byte { return labelled("polyrail", seal(key('a'), "other", text)) },
		func(text []byte) []byte {
			return labelled("polyrail", unlabelled(sealedStreamOf(key('a'), "other", text)))
		}},
	"the beginning of what is sealed": {
		func([]byte) []byte { return labelled("polyrail", []byte{0}) },
		func([]byte) []byte { return labelled("polyrail", []byte{msgSealed, 0, 0, 0, 29, sealVersion}) }},
}

// startSealed starts nodes n1, n2 and n3 with gossip's key, and with signers if there are any.
func startSealed(t *testing.T, network Network, signers ...Signer) (peers []peer) {
	t.Helper()
	var f keyfile
	f.set("a")
	for i := range 3 {
		c := config(network, fmt.Sprintf("n%d", i+1), 7, fmt.Sprintf("10.0.0.%d:7946", i+1), seed)
		c.Keys = f.read
		if signers != nil {
			c.Signer = signers[i]
		}
		peers = append(peers, start(t, c))
	}
	for _, p := range peers {
		p.until(t, "the others", func() bool { return len(p.events) == 2 })
		p.forget()
	}
	return peers
}

// unmoved fails if a node has heard anything, or has other members than it had.
func (p *peer) unmoved(t *testing.T) {
	t.Helper()
	p.ear.mu.Lock()
	defer p.ear.mu.Unlock()
	if got := nodes(p.Gossip); got != "n1 n2 n3" || p.Err() != nil || len(p.events)+len(p.msgs) != 0 {
		t.Errorf("members %s, error %v, heard %v, %v", got, p.Err(), p.events, p.msgs)
	}
}

// saidToAll are the messages of attacks on a cluster without keys, and a rendezvous message.
func saidToAll(t *testing.T) (packets, streams [][]byte) {
	t.Helper()
	for _, p := range expelling() {
		packets = append(packets, unlabelled(gossipOf("polyrail", p.kind, p.claim)))
	}
	for i := range 8 {
		made := alive(fmt.Sprint("made-up", i), 7, 1, "10.0.0.9:7946", staying)
		packets = append(packets, unlabelled(gossipOf("polyrail", msgAlive, made)))
	}
	propose, err := proto.Marshal(&messages.Rendezvous{From: "n2", Incarnation: 7, ToIncarnation: 7,
		Body: RendezvousOf(&view.Propose{View: &view.View{Name: "x", Ballot: 1 << 62}}, 7).Body})
	if err != nil {
		t.Fatal(err)
	}
	packets = append(packets, append([]byte{msgUser}, propose...))
	const compressed = 9
	bomb := struct {
		Algo int
		Buf  []byte
	}{0, make([]byte, 1000)}
	packets = append(packets, unlabelled(gossipOf("polyrail", compressed, bomb)))
	states := struct {
		Nodes, UserStateLen int
		Join                bool
	}{Nodes: 1 << 30}
	user := struct{ UserMsgLen int }{len(propose)}
	return packets, [][]byte{
		unlabelled(gossipOf("polyrail", msgPushPull, states)),
		unlabelled(gossipOf("polyrail", compressed, bomb)),
		unlabelled(gossipOf("polyrail", msgPing, struct{ SeqNo uint32 }{1})),
		append(unlabelled(gossipOf("polyrail", msgUser, user)), propose...),
	}
}

// Packets by the ten thousand and streams by the hundred come from those who have no key of a cluster:
// nobody hears of it, and nothing is left.
func TestWhoHasNoKeyOfGossipReachesNothing(t *testing.T) {
	const packets, streams = 10_000, 200
	for name, o := range outsiders {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				network := memnet.New()
				peers := startSealed(t, network)
				a := newAttacker(t, network, "10.0.0.9:7946")
				pass(settleTime + time.Second)
				synctest.Wait()
				before := bubble.Goroutines()
				small, large := saidToAll(t)
				for i := range packets / len(outsiders) {
					to := fmt.Sprintf("10.0.0.%d:7946", 1+i%3)
					if _, err := a.WriteTo(o.packet(small[i/3%len(small)]), to); err != nil {
						t.Fatal(err)
					}
					if i%100 == 99 {
						pass(time.Millisecond)
					}
				}
				for i := range streams / len(outsiders) {
					a.shout(fmt.Sprintf("10.0.0.%d:7946", 1+i%3), o.stream(large[i/3%len(large)]))
				}
				pass(time.Minute)
				synctest.Wait()
				if after := bubble.Goroutines(); after > before {
					t.Errorf("%d goroutines, %d before", after, before)
				}
				for _, p := range peers {
					p.unmoved(t)
					if s := p.Stats(); s != (Stats{}) {
						t.Errorf("rendezvous messages came through: %+v", s)
					}
				}
				if err := peers[0].Send("n2", RendezvousOf(&view.Withdraw{Name: "x", Ask: 1}, 7)); err != nil {
					t.Fatal(err)
				}
				peers[1].until(t, "a message", func() bool { return len(peers[1].msgs) == 1 })
				closeAll(t, peers...)
				a.Shutdown()
			})
		})
	}
}

// Whoever has got hold of gossip's key, and of no certificate, cannot say what decides on
// communicators: not by the ten thousand either.
func TestAStolenKeyOfGossipDecidesOnNothing(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		peers := startSealed(t, network, named("n1"), named("n2"), named("n3"))
		a := newAttacker(t, network, "10.0.0.9:7946")
		pass(settleTime + time.Second)
		synctest.Wait()
		before := bubble.Goroutines()
		sign := func(by named, to string, b []byte) []byte {
			s, _, _ := by.Sign(addressed(processName(to, 7), b))
			return s
		}
		const packets = 10_000
		for i := range packets {
			to := fmt.Sprintf("n%d", 1+i%3)
			m := &messages.Rendezvous{From: fmt.Sprintf("n%d", 1+(i+1)%3), Incarnation: 7, ToIncarnation: 7}
			m.Body = RendezvousOf([]view.Message{
				&view.Propose{View: &view.View{Name: "x", Ballot: 1 << 62}},
				&view.Refuse{Name: "x", ID: 1, Cause: view.Outbid, Ballot: 1 << 62},
				&view.Reject{Name: "x", Ask: uint64(i)},
				&view.Announce{Name: fmt.Sprint(i), Ask: 1, Size: 2, TTL: time.Minute},
			}[i/3%4], 7).Body
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			switch i / 12 % 4 {
			case 0: // not signed
			case 1: // signed by another node
				b, err = proto.Marshal(&messages.Signed{Message: b, Signature: sign("x", to, b)})
			case 2: // signed for another node
				b, err = proto.Marshal(&messages.Signed{Message: b, Signature: sign(named(m.From), "n9", b)})
			case 3: // the signature of another message
				b, err = proto.Marshal(&messages.Signed{Message: b, Signature: sign(named(m.From), to, b[:len(b)-1])})
			}
			if err != nil {
				t.Fatal(err)
			}
			text := labelled("polyrail", seal(key('a'), "polyrail", append([]byte{msgUser}, b...)))
			if _, err := a.WriteTo(text, fmt.Sprintf("10.0.0.%d:7946", 1+i%3)); err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 {
				pass(time.Millisecond)
			}
		}
		for i := range 3 { // memberlist ends the process of who opens these
			to := fmt.Sprintf("10.0.0.%d:7946", 1+i)
			padded := seal(key('a'), "polyrail", bytes.Repeat([]byte{0xff}, 16))
			padded[0] = 0 // the version that has padding, and there is none
			if _, err := a.WriteTo(labelled("polyrail", padded), to); err != nil {
				t.Fatal(err)
			}
			for _, text := range [][]byte{nil, bytes.Repeat([]byte{0xff}, 16)} {
				b := sealedStreamOf(key('a'), "polyrail", text)
				if text != nil {
					b[len("polyrail")+7] = 0
				}
				a.shout(to, b)
			}
		}
		pass(time.Minute)
		synctest.Wait()
		if after := bubble.Goroutines(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
		refused := uint64(0)
		for _, p := range peers {
			p.unmoved(t)
			refused += p.Stats().Undecodable
		}
		if refused != packets {
			t.Errorf("%d of %d messages were refused", refused, packets)
		}
		closeAll(t, peers...)
		a.Shutdown()
	})
}

// What is sealed is memberlist's to judge, but for what memberlist would not survive.
func TestWhatIsSealedPassesTheGuard(t *testing.T) {
	g := &guard{label: "polyrail", sealed: true}
	packet := labelled("polyrail", seal(key('a'), "polyrail", []byte("text")))
	if got, err := g.packet(slices.Clone(packet), time.Time{}); err != nil || !bytes.Equal(got, unlabelled(packet)) {
		t.Errorf("packet: %q, %v", got, err)
	}
	read := func(b []byte) ([]byte, error) {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			_, _ = far.Write(b)
			far.Close()
		}()
		return io.ReadAll(&guardedStream{Conn: near, guard: g, label: g.label})
	}
	stream := sealedStreamOf(key('a'), "polyrail", []byte("text"))
	if got, err := read(stream); err != nil || !bytes.Equal(got, unlabelled(stream)) {
		t.Errorf("stream: %q, %v", got, err)
	}
	other := slices.Clone(packet)
	other[2+len(g.label)] = 0
	for what, b := range map[string][]byte{"of another cluster": gossipOf("another", 1, "x"), "with a padding": other,
		"of nothing": labelled("polyrail", nil)} {
		if _, err := g.packet(b, time.Time{}); err == nil {
			t.Errorf("a packet %s passes", what)
		}
	}
	head := len(g.label) + 2
	for what, change := range map[string]func(b []byte){
		"not sealed":      func(b []byte) { b[head] = msgPushPull },
		"with a padding":  func(b []byte) { b[head+5] = 0 },
		"of nothing":      func(b []byte) { binary.BigEndian.PutUint32(b[head+1:], leastSealed-1) },
		"of many bytes":   func(b []byte) { binary.BigEndian.PutUint32(b[head+1:], maxStateBytes+1) },
		"of another name": func(b []byte) { b[3]++ },
	} {
		b := slices.Clone(stream)
		change(b)
		if got, err := read(b); err == nil || len(got) != 0 {
			t.Errorf("a stream %s passes: %q", what, got)
		}
	}
}

// FuzzSigned: of whatever comes in place of a signed message, only what a node has signed for this
// process is taken.
func FuzzSigned(f *testing.F) {
	g := &Gossip{cfg: Config{Signer: named("n1")}, self: Member{Node: "n1", Incarnation: 7}}
	from := &Gossip{cfg: Config{Signer: named("n2")}, self: Member{Node: "n2", Incarnation: 7}}
	for _, m := range everyMessage() {
		r := RendezvousOf(m, 7)
		r.From = "n2"
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		if b, err = from.signed(g.self, b); err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := g.checked(b)
		if err != nil {
			return
		}
		var s messages.Signed
		if err := proto.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		if want, _, _ := named(m.From).Sign(addressed(g.self.process(), s.Message)); !bytes.Equal(s.Signature, want) {
			t.Errorf("a message of %q with the signature %q", m.From, s.Signature)
		}
	})
}
