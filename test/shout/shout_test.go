// Package shout tests that whoever has no key and shouts at a cluster reaches nothing
// (docs/security.md): sockets of this host, connections by the thousand, packets by the ten
// thousand. What single frames and packets could do is tested beside the code that refuses them.
package shout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"google.golang.org/protobuf/proto"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/test/testbed"
)

const (
	nodes       = 3
	rails       = 2
	connections = 1000
	packets     = 10_000
	madeUp      = 100 // names among them

	heapSlack = 16 << 20
	// Until all that was opened is closed takes a second. Whoever was taken for dead on a busy host is
	// a member again after half a minute.
	patience = time.Minute
)

func TestWhoeverShoutsReachesNothing(t *testing.T) { shoutAt(t, nil) }

// With keys they do not even reach what is refused without: those with no key, with keys of another
// authority, and with another node's.
func TestWhoeverShoutsReachesNothingBehindKeys(t *testing.T) { shoutAt(t, newLocksmith(t)) }

// shoutAt shouts at a cluster, which has keys if there is a locksmith.
func shoutAt(t *testing.T, keys *locksmith) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out what takes the time of a clock")
	}
	o := testbed.Options{Nodes: nodes, Rails: rails, Over: testbed.Loopback, Gossip: testbed.Loopback}
	if keys != nil {
		o.Adapt = keys.adapt
	}
	c, err := testbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		operate(t, comms)
	}
	devices := keys.devices(t)
	before := use()

	s := &shouter{t: t, cluster: c.Configs[0].Cluster, random: rand.New(rand.NewPCG(1, 2)),
		keyed: keys != nil, devices: devices}
	for _, n := range c.Nodes {
		s.victims = append(s.victims, victimOf(t, c.Nodes[0], n))
	}
	var done atomic.Bool
	operations := make(chan int)
	go func() {
		n := 0
		for ; !done.Load(); n++ {
			operate(t, comms)
		}
		operations <- n
	}()
	s.connect()
	s.send()
	during := use()
	done.Store(true)
	t.Logf("%d operations meanwhile", <-operations)
	s.close()
	for range 20 {
		operate(t, comms)
	}

	if during.goroutines > before.goroutines+2*connections {
		t.Errorf("%d goroutines while %d connections were made, %d before", during.goroutines, connections, before.goroutines)
	}
	for i, n := range c.Nodes {
		for _, r := range n.Rails() {
			if r.Reconnects != 0 || r.Resent != 0 {
				t.Errorf("node %d: rail %s was cut: %+v", i, r.Name, r)
			}
		}
	}
	belong(t, c.Nodes)
	ended(t, before)
}

// operate has all ranks run one operation, and looks at what it gave.
func operate(t *testing.T, comms []*polyrail.Communicator) {
	err := testbed.Each(len(comms), func(i int) error {
		data := make([]float32, 1000)
		for k := range data {
			data[k] = float32(i + k)
		}
		if err := polyrail.AllReduce(t.Context(), comms[i], data, polyrail.Sum); err != nil {
			return err
		}
		for k, v := range data {
			if want := float32(nodes*k + nodes*(nodes-1)/2); v != want {
				return fmt.Errorf("element %d is %v, want %v", k, v, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// belong waits until every node is a member to all of them. Who gets no processor time for a while is
// given up, shouts or none, and comes back.
func belong(t *testing.T, all []*polyrail.Node) {
	t.Helper()
	await(t, func() (missing string) {
		for i, n := range all {
			for j := range nodes {
				if !slices.ContainsFunc(n.Members(), func(m polyrail.Member) bool { return m.Node == testbed.NodeName(j) }) {
					missing += fmt.Sprintf("node %d: node %d is no member any more; ", i, j)
				}
			}
		}
		return missing
	})
}

// await waits until nothing is missing. It has patience, and then says what is.
func await(t *testing.T, look func() (missing string)) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for late := time.After(patience); ; {
		missing := look()
		if missing == "" {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Errorf("%v later: %s", patience, missing)
			return
		}
	}
}

// usage is what the process has of what a stranger could make grow.
type usage struct {
	goroutines, descriptors int
	heap                    uint64
}

func use() usage {
	runtime.GC()
	runtime.GC() // what pools held is gone after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil { // elsewhere than on Linux: none
		u.descriptors = len(open)
	}
	return u
}

// ended waits until nothing is left of what was said.
func ended(t *testing.T, before usage) {
	t.Helper()
	await(t, func() (left string) {
		u := use()
		if u.goroutines <= before.goroutines && u.descriptors <= before.descriptors && u.heap <= before.heap+heapSlack {
			t.Logf("before %+v, after %+v", before, u)
			return ""
		}
		return fmt.Sprintf("%+v were in use, %+v are left", before, u)
	})
}

// victim is what a stranger may know of a node.
type victim struct {
	node        string
	incarnation uint64
	gossip      string
	rails       []polyrail.RailStatus
}

func victimOf(t *testing.T, seed, n *polyrail.Node) victim {
	for _, m := range seed.Members() {
		if m.Node == n.Name() {
			return victim{n.Name(), m.Incarnation, n.GossipAddr(), n.Rails()}
		}
	}
	t.Fatalf("%s is no member", n.Name())
	return victim{}
}

// shouter knows all that is no secret, and has no key of the cluster's but another node's.
type shouter struct {
	t       *testing.T
	cluster string
	random  *rand.Rand
	victims []victim
	conns   []io.Closer
	keyed   bool // the cluster has keys
	devices []transport.Device
}

// connect makes connections, and keeps them.
func (s *shouter) connect() {
	for i := range connections {
		to := s.victims[i%nodes]
		c, err := s.dial(i, to)
		if err != nil {
			s.t.Errorf("connection %d: %v", i, err)
			continue
		}
		s.conns = append(s.conns, c)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // for a handshake
		_, _ = c.Write(s.first(i, to))                     // it may be closed already
	}
}

// dial makes a connection: to gossip, or to a rail, in plain text or with keys.
func (s *shouter) dial(i int, to victim) (transport.Conn, error) {
	d, addr := s.devices[i/10%len(s.devices)], to.rails[i/nodes%rails].Addr
	if i%10 == 9 {
		d, addr = s.devices[0], to.gossip
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	return d.Dial(ctx, addr)
}

// first is what a connection begins with.
func (s *shouter) first(i int, to victim) []byte {
	if i%10 == 9 {
		return s.gossip(i, to)
	}
	peer := s.victims[(i+1)%nodes]
	h := &messages.Hello{Version: wire.Version, Cluster: s.cluster, Node: peer.node, Incarnation: peer.incarnation,
		To: to.node, Rail: to.rails[i/nodes%rails].Name, Generation: 1, Session: 1}
	switch i % 9 {
	case 0:
		return nil
	case 1:
		garbage := make([]byte, 2000)
		for k := range garbage {
			garbage[k] = byte(s.random.Uint32())
		}
		return garbage
	case 2:
		h.Incarnation = math.MaxUint64
	case 3:
		h.Incarnation++
	case 4:
		h.Session = math.MaxUint64
	case 5:
		h.Generation, h.Session = math.MaxUint64, s.random.Uint64()
	case 6:
		h.Node = fmt.Sprint("made-up", i)
	case 7:
		h.Cluster = "another"
	case 8:
		h.Probe = true
	}
	return append(frame(s.t, wire.Header{Kind: wire.KindHello}, h), forged(h.Generation)...)
}

func frame(t *testing.T, h wire.Header, m proto.Message) []byte {
	payload, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	h.Length = uint32(len(payload))
	var header [wire.Size]byte
	h.Encode(header[:])
	return append(header[:], payload...)
}

// forged is a frame of data as the first of a connection.
func forged(generation uint64) []byte {
	h := wire.Header{Kind: wire.KindData, Number: 1, Seq: 1, Comm: 1, Count: 1, Length: 8, Generation: uint8(generation)}
	var header [wire.Size + 8]byte
	h.Encode(header[:wire.Size])
	return header[:]
}

// send sends packets.
func (s *shouter) send() {
	var conns [nodes]net.Conn
	for i := range conns {
		c, err := net.Dial("udp", s.victims[i].gossip)
		if err != nil {
			s.t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	for i := range packets {
		_, err := conns[i%nodes].Write(s.gossip(i, s.victims[i%nodes]))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Logf("packet %d: %v", i, err)
		}
	}
}

// Types of memberlist's messages.
const (
	suspect = 3
	alive   = 4
	dead    = 5
)

// gossip is a message of memberlist's, or what is none.
func (s *shouter) gossip(i int, to victim) []byte {
	peer := s.victims[s.random.IntN(nodes)]
	label := s.cluster
	m := struct {
		Incarnation uint32
		Node, From  string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}{Incarnation: 1 << 31, Node: peer.node + "#" + strconv.FormatUint(peer.incarnation, 16), From: "x", Vsn: []uint8{1, 5, 2, 0, 0, 0}}
	ap := netip.MustParseAddrPort(to.gossip)
	m.Addr, m.Port = ap.Addr().AsSlice(), ap.Port()
	kind := byte(alive)
	switch i % 8 {
	case 0:
		kind = dead
	case 1:
		kind, m.Incarnation = dead, 1
	case 2:
		kind = suspect
	case 3: // at the last incarnation there is
		m.Incarnation = math.MaxUint32
	case 4: // at another address
		m.Incarnation = 2
	case 5: // of another node of its name, which was first
		m.Node, peer.incarnation = peer.node+"#1", 1
	case 6:
		peer.incarnation = 1
		m.Node, m.Incarnation = fmt.Sprintf("made-up%d#1", s.random.IntN(madeUp)), 1
	case 7:
		label = "another"
	}
	m.Meta = binary.LittleEndian.AppendUint32(nil, cluster.ProtocolVersion)
	m.Meta = append(binary.LittleEndian.AppendUint64(m.Meta, peer.incarnation), 0)
	var body []byte
	if err := codec.NewEncoderBytes(&body, new(codec.MsgpackHandle)).Encode(m); err != nil {
		s.t.Fatal(err)
	}
	b := append([]byte{244, byte(len(label))}, label...)
	if s.keyed && i%3 == 0 { // as if it was sealed, with a key that nobody has
		const sealed, version, nonce = 10, 1, 12
		if i%10 == 9 { // a stream says how long it is
			b = binary.BigEndian.AppendUint32(append(b, sealed), uint32(1+nonce+len(body)))
		}
		b = append(append(b, version), make([]byte, nonce)...)
		return append(b, body...)
	}
	b = append(append(b, kind), body...)
	if i%16 == 15 { // what is none
		for range 8 {
			b[s.random.IntN(len(b))] ^= byte(1 + s.random.Uint32()%255)
		}
	}
	return b
}

func (s *shouter) close() {
	for _, c := range s.conns {
		c.Close()
	}
}
