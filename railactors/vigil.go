package railactors

import (
	"fmt"
	"sync"
	"time"
)

// A node whose runtime has not been heard for vigilSilence while it owes something is as good as
// dead: its kernel may acknowledge what nobody reads. Looks count, not the time: who stood still
// itself has not listened.
const (
	vigilSilence = 200 * time.Millisecond
	vigilLooks   = 8 // per vigilSilence
)

// Vigil watches over a node that owes answers (docs/decisions/035), of an aggregation tree.
type Vigil struct {
	Peer *Peer
	Rail int // on which the node is asked to show that it is there
	// Owes reports whether something is owed still.
	Owes func() bool
	// Down is told, at most once, that the node does not answer. Neither may block.
	Down func(reason string)

	mu       sync.Mutex
	timer    *time.Timer // nil before the first look
	heard    time.Time   // when the node was last, as of the last look
	silent   int         // looks in a row by which it was not
	watching bool
	stopped  bool
}

// Begin watches from now on, unless it does, until nothing is owed.
func (v *Vigil) Begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.watching {
		v.heard, v.silent = v.Peer.LastHeard(), 0
		v.again()
	}
}

// again sets the time of the next look. Under mu.
func (v *Vigil) again() {
	if v.watching = !v.stopped; v.stopped {
		return
	}
	if v.timer == nil {
		v.timer = time.AfterFunc(vigilSilence/vigilLooks, v.look)
	} else {
		v.timer.Reset(vigilSilence / vigilLooks)
	}
}

// Stop ends it. A look that is under way may still end with Down.
func (v *Vigil) Stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped = true; v.timer != nil {
		v.timer.Stop()
	}
}

// look has the node show that it is there.
func (v *Vigil) look() {
	v.mu.Lock()
	v.watching = false // before it asks what is owed: Begin may be called meanwhile
	v.mu.Unlock()
	if !v.Owes() {
		return
	}
	heard := v.Peer.LastHeard()
	v.mu.Lock()
	if v.silent++; heard.After(v.heard) {
		v.heard, v.silent = heard, 0
	}
	silent := v.silent
	v.mu.Unlock()
	if silent >= vigilLooks {
		v.Stop()
		v.Down(fmt.Sprintf("node %q has not answered for %v", v.Peer.Node(), vigilSilence))
		return
	}
	if silent > 0 {
		v.Peer.Ping(v.Rail)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.again()
}
