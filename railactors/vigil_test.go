package railactors

import (
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
