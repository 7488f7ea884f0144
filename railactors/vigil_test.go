package railactors

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport/mem"
)

// Who stood still has not listened, and blames nobody for that.
func TestAVigilThatStoodStillBlamesNobody(t *testing.T) {
	virtual(t, 1, func(b *bed, net *mem.Network) {
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		stops := true
		down := make(chan string, 1)
		v := Vigil{Peer: ab, Down: func(reason string) { down <- reason }, Owes: func() bool {
			if stops { // as by SIGSTOP: nothing is read, and what has come is read later
				stops = false
				net.Silence("b", "rail0")
				<-time.After(2 * vigilSilence)
				net.Heal("b", "rail0")
			}
			return true
		}}
		v.Begin()
		select {
		case reason := <-down:
			b.t.Fatal(reason)
		case <-time.After(10 * vigilSilence):
		}
		net.Silence("b", "rail0")
		start := time.Now()
		<-down
		// Until then it was heard at every other look.
		if took := time.Since(start); took < vigilSilence-2*vigilSilence/vigilLooks || took > vigilSilence*5/4 {
			t.Errorf("a node that answers no more is noticed after %v", took)
		}
	})
}

// A vigil lasts as long as something is owed, each time anew. Who begins it again while it lasts changes
// nothing, and it blames once.
func TestAVigilCountsLooksWhileSomethingIsOwed(t *testing.T) {
	const look = vigilSilence / vigilLooks
	virtual(t, 1, func(b *bed, net *mem.Network) {
		b.tune = func(c *Config) { c.RankTimeout = time.Minute }
		n := b.start("a", "b")
		ab, _ := join(n[0], n[1])
		var owes atomic.Bool
		down := make(chan string, 2)
		v := Vigil{Peer: ab, Down: func(reason string) { down <- reason }, Owes: owes.Load}
		blames := func(within time.Duration) bool {
			select {
			case <-down:
				return true
			case <-time.After(within):
				return false
			}
		}
		net.Silence("b", "rail0")
		v.Begin()
		if blames(2 * vigilSilence) {
			t.Fatal("it owes nothing and is blamed")
		}
		owes.Store(true)
		v.Begin()
		if blames(vigilSilence - 2*look) {
			t.Fatal("it is blamed too soon")
		}
		owes.Store(false)
		if blames(2 * vigilSilence) {
			t.Fatal("it has answered and is blamed")
		}
		owes.Store(true)
		v.Begin()
		if blames(vigilSilence - look) {
			t.Fatal("it is blamed for the last time's silence")
		}
		blamed := false
		for range vigilLooks {
			v.Begin()
			blamed = blamed || blames(look/2)
		}
		if !blamed {
			t.Error("it is not blamed where others begin to watch")
		}
		v.Begin()
		if blames(2 * vigilSilence) {
			t.Error("it is blamed twice")
		}
		net.Heal("b", "rail0")
	})
}
