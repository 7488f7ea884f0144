package polyrail_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// carried runs an operation and returns the bytes that each rail of each node sent for it.
func (b *bed) carried(comms []*Communicator) (bytes []uint64) {
	b.t.Helper()
	count := func() (sent []uint64) {
		for _, n := range b.Nodes {
			for _, r := range n.Rails() {
				sent = append(sent, r.BytesSent)
			}
		}
		return sent
	}
	before := count()
	b.each(func(i int) error {
		buf := operand(i, 1<<18)
		if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
			return err
		}
		return checkSum(buf, len(comms))
	})
	bytes = count()
	for i := range bytes {
		bytes[i] -= before[i]
	}
	return bytes
}

// returns takes a rail of a node away, so many times and for so long, in each of the ways: each
// time the other rail carries all of that node's operations meanwhile, and 2 s after the repair
// each rail carries what it did before, to the byte.
func returns(t *testing.T, nodes, times int, away time.Duration, ways ...string) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			inBed(t, nodes, 2, func(c *Config) { c.Rails[0].Weight, c.Rails[1].Weight = 3, 1 }, func(b *bed) {
				comms := b.form("train")
				whole := b.carried(comms)
				for i := range b.Nodes {
					if r0, r1 := whole[2*i], whole[2*i+1]; r0 < 2*r1 || r1 == 0 {
						t.Fatalf("node %d sends %d and %d bytes, want 3 to 1", i, r0, r1)
					}
				}
				for k := range times {
					map[string]func(host, device string){"cut": b.Rails.Cut, "silence": b.Rails.Silence, "unplug": b.Rails.Unplug}[way]("node1", "eth0")
					b.carried(comms) // the one that is hit
					if without := b.carried(comms); without[2] != 0 || without[3] != whole[2]+whole[3] {
						t.Fatalf("fault %d: node 1 sends %d and %d bytes, want none and %d", k, without[2], without[3], whole[2]+whole[3])
					}
					<-time.After(away)
					b.Rails.Heal("node1", "eth0")
					<-time.After(2 * time.Second)
					if again := b.carried(comms); !slices.Equal(again, whole) {
						t.Fatalf("fault %d: after the repair the rails carry %v bytes, before it was %v", k, again, whole)
					}
				}
			})
		})
	}
}

// An hour of heartbeats and gossip takes seconds. That a rail is connected again after it, whatever
// the fault, is in railactors.
func TestARailIsBackAtItsFullShareAfterAnHourOff(t *testing.T) {
	if brief() {
		t.Skip("long under the race detector")
	}
	returns(t, 2, 1, time.Hour, "silence")
}

func TestARailIsBackAtItsFullShareAfterTwentyFlaps(t *testing.T) {
	returns(t, 3, 20, 300*time.Millisecond, "cut", "silence", "unplug")
}

// node2's host is cut off, and node2 is started elsewhere. When it goes on, its calls say that another
// process has its name.
func TestANodeThatWasReplacedMeanwhileIsTold(t *testing.T) {
	inBed(t, 3, 1, nil, func(b *bed) {
		<-time.After(time.Minute)
		b.Rails.Silence("node2", "eth0")
		b.Gossip.Partition([]string{b.Configs[2].Bind})
		<-time.After(20 * time.Second)
		cfg := b.Configs[2]
		cfg.Bind, cfg.Rails = "10.0.9.9:7946", slices.Clone(cfg.Rails)
		cfg.Rails[0].Transport = b.Rails.Transport("another host")
		second, err := b.Join(b.t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(30 * time.Second)
		b.Rails.Heal("node2", "eth0")
		b.Gossip.Heal()
		<-time.After(time.Minute)
		ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
		defer cancel()
		if _, err := b.Nodes[2].Communicator(ctx, "x", 3); err == nil || !strings.Contains(err.Error(), cfg.Bind) {
			t.Errorf("the other process of this name is not named: %v", err)
		}
		if err := second.Close(b.t.Context()); err != nil {
			t.Error(err)
		}
	})
}
