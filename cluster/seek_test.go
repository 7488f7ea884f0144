package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/test/bubble"
)

// nameServer says 127.0.0.1 for every name but those of the domain "silent", and for these nothing at all,
// as one does whose forwarder is gone.
func nameServer(t *testing.T) *net.Resolver {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			end := 12 // of the name
			for end < n && query[end] != 0 {
				end += 1 + int(query[end])
			}
			if strings.Contains(string(query[12:end]), "silent") {
				continue
			}
			answer := slices.Clone(query[:end+5])
			answer[2], answer[3] = 0x81, 0x80
			clear(answer[6:12])
			if kind := binary.BigEndian.Uint16(query[end+1:]); kind == 1 {
				answer[7] = 1
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
			}
			if _, err := socket.WriteTo(answer, from); err != nil {
				return
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// Some of the names of seeds may be down, with what would resolve them.
func TestANameThatIsNotResolvedHoldsUpNoOther(t *testing.T) {
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	net.DefaultResolver = nameServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &Gossip{ctx: ctx, cfg: Config{StreamTimeout: 200 * time.Millisecond,
		Join: []string{"a.silent.:7946", "b.example.:7946", "10.0.0.1:7946", "no port"}}}
	addrs, errs := g.resolveSeeds()
	if want := []string{"127.0.0.1:7946", "10.0.0.1:7946"}; !slices.Equal(addrs, want) {
		t.Errorf("resolved %v, want %v", addrs, want)
	}
	if len(errs) != 2 || errs[0].Seed != "a.silent.:7946" || errs[1].Seed != "no port" {
		t.Errorf("errors: %v", errs)
	}
}

// A node is cut off, and a replacement of its name is started elsewhere. Both have settled when the two
// parts meet, so neither goes.
func TestTwoOfOneNameThatMeetLateAreToldOfEachOther(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		net := memnet.New()
		peers := startAll(t, net, 3)
		pass(time.Minute)
		net.Partition([]string{"10.0.0.3:7946"})
		peers[0].expect(t, "n3#7 failed")
		var log bytes.Buffer
		c := config(net, "n3", 9, "10.0.0.4:7946", seed)
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		second := start(t, c)
		peers[0].expect(t, "n3#9 joined")
		pass(time.Minute)
		net.Heal()
		pass(time.Minute)
		if err := peers[2].Rival(); err == nil || !strings.Contains(err.Error(), "10.0.0.4:7946") {
			t.Errorf("the one that is not heard: %v", err)
		}
		for _, p := range []peer{peers[0], second} {
			if err := p.Rival(); err != nil {
				t.Errorf("the node at %s: %v", p.Addr(), err)
			}
		}
		if peers[2].Err() != nil || second.Err() != nil {
			t.Errorf("one goes: %v, %v", peers[2].Err(), second.Err())
		}
		if n := strings.Count(log.String(), "both stay"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}
		closeAll(t, second)
		pass(time.Minute)
		if err := peers[2].Rival(); err != nil {
			t.Errorf("alone again: %v", err)
		}
		closeAll(t, peers...)
	})
}
