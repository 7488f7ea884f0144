package sharp

import (
	"fmt"
	"math"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
)

// This file is about results that a node sends to many children at once, in datagrams that may be
// lost (SHArP §III-D, docs/decisions/043). A child that misses one asks for it, and gets it as a
// frame; until a node knows that a child has a result, it keeps it.

// Results says how results go down a tree.
type Results uint8

// The ways. A result that is too long for a datagram, and what goes to one rank alone, goes by unicast.
const (
	Unicast   Results = iota // to each child by itself
	Multicast                // to all ranks below a node at once; to who missed it once more, by unicast
	Both                     // to all ranks at once, and to each by itself: the first one counts
)

var resultNames = [...]string{"unicast", "multicast", "both"}

// Valid reports whether it is one of the three.
func (r Results) Valid() bool { return int(r) < len(resultNames) }

func (r Results) String() string {
	if !r.Valid() {
		return fmt.Sprintf("results(%d)", int(r))
	}
	return resultNames[r]
}

// ParseResults reads a way by its name: unicast, multicast or both.
func ParseResults(s string) (Results, error) {
	if i := slices.Index(resultNames[:], s); i >= 0 {
		return Results(i), nil
	}
	return 0, fmt.Errorf("results %q: must be unicast, multicast or both", s)
}

// MaxCast is the longest result that is cast, in bytes: with its header it fits into one packet of
// any network, so no part of it is lost alone.
const MaxCast = 1 << 10

// Castable reports whether a fragment's result may be cast: it is short, and all get it.
func Castable(k op.Kind, bytes int) bool { return !k.Rooted() && bytes <= MaxCast }

// casting is what a node knows of the results that it casts.
type casting struct {
	has   []uint64     // by child: it has the responses below
	asked []uint64     // by child: it wants those below by unicast
	cast  []castResult // by number, modulo twice the window
}

// castResult is one that some children may lack.
type castResult struct {
	number uint64
	waits  []bool // by child
}

func newCasting(c NodeConfig) (k casting) {
	if c.Results != Multicast || c.Casts == nil {
		return casting{}
	}
	k = casting{has: make([]uint64, c.Children), asked: make([]uint64, c.Children),
		// Every child has sent the fragments below done, and with each it had all that is a window
		// before. So what is cast and not known to be there is less than a window away from done.
		cast: make([]castResult, 2*c.Window)}
	for i := range k.cast {
		k.cast[i].waits = make([]bool, c.Children)
	}
	return k
}

// casts reports whether a fragment's result is cast.
func (n *Node) casts(r *Request) bool {
	return n.Results != Unicast && n.Casts != nil && Castable(r.Desc.Kind, r.Bytes)
}

// waits reports whether a child is to get a result by the cast alone, and takes note of it.
func (n *Node) waits(child int, number uint64) bool {
	if n.casting.cast == nil || !n.Casts[child] || number < n.casting.asked[child] {
		return false
	}
	c := n.castAt(number)
	c.number, c.waits[child] = number, true
	return true
}

func (n *Node) castAt(number uint64) *castResult {
	return &n.casting.cast[number%uint64(len(n.casting.cast))]
}

// takes takes back that a child waits for a result by a cast. False if it does not.
func (n *Node) takes(child int, number uint64) bool {
	c := n.castAt(number)
	if c.number != number || !c.waits[child] {
		return false
	}
	c.waits[child] = false
	return true
}

// has: a child has the responses below number.
func (n *Node) has(child int, number uint64, out []Action) []Action {
	if n.casting.cast == nil {
		return out
	}
	for h := &n.casting.has[child]; *h < number; *h++ {
		if n.takes(child, *h) {
			out = n.Released(*h, out)
		}
	}
	return out
}

// Ask takes a child's word that it lacks some response below to, and none below from. It gets what was
// cast once more, and what is to come by unicast. An error is a claim that can't be true.
func (n *Node) Ask(child int, from, to uint64, out []Action) ([]Action, error) {
	if from > n.done || from > to {
		return out, fmt.Errorf("child %d asks for the responses from %d to %d, those below %d are sent", child,
			from, to, n.done)
	}
	if n.casting.cast == nil {
		return out, nil
	}
	out = n.has(child, from, out)
	n.casting.asked[child] = max(n.casting.asked[child], to)
	for number := n.casting.has[child]; number < min(to, n.done+uint64(n.Window)); number++ {
		if n.takes(child, number) {
			out = append(out, Action{Kind: Respond, Number: number, Child: child})
		}
	}
	return out, nil
}

// CastFailed says that a cast could not be sent: who waits for it gets the result by unicast.
func (n *Node) CastFailed(number uint64, out []Action) []Action {
	if n.casting.cast == nil {
		return out
	}
	for child := range n.Children {
		if n.takes(child, number) {
			out = append(out, Action{Kind: Respond, Number: number, Child: child})
		}
	}
	return out
}

// missing is what a rank knows of responses that may be lost.
type missing struct {
	cast    uint64 // some of those below may
	mark    uint64 // those below were sent for when Overdue was last called
	asked   uint64 // those below come by unicast
	unheard int    // how often it asked since it has heard a cast
}

// All is the number of an Ask for each response from now on.
const All = math.MaxUint64

// maxUnheard is how often a rank asks, without having heard a cast since, until it asks for All: its
// network does not carry them.
const maxUnheard = 16

// SentForCast says that the response to a fragment, which was sent, may be lost.
func (l *Leaf) SentForCast(number uint64) { l.missing.cast = number + 1 }

// Awaits reports whether a response is outstanding that may be lost, and wasn't asked for.
func (l *Leaf) Awaits() bool {
	return !l.fenced && max(l.received, l.missing.asked) < l.missing.cast
}

// Overdue is called from time to time while a leaf Awaits. It returns up to which number the node is to
// be asked for what is not here (Node.Ask): of what was outstanding at the call before.
func (l *Leaf) Overdue() (to uint64, ok bool) {
	m := &l.missing
	to, m.mark = m.mark, m.cast
	if !l.Awaits() || to <= max(l.received, m.asked) {
		return 0, false
	}
	if m.unheard++; m.unheard >= maxUnheard {
		to = All
	}
	m.asked = to
	return to, true
}

// Heard says that a cast has come, of whatever fragment.
func (l *Leaf) Heard() { l.missing.unheard = 0 }

// AskAll says that this rank hears no casts: the node is to be asked for All.
func (l *Leaf) AskAll() (to uint64) {
	l.missing.asked = All
	return All
}
