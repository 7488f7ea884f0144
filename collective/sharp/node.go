package sharp

import "fmt"

// NodeConfig is what shapes a node's part in a group.
type NodeConfig struct {
	Children int
	Window   int  // fragments that a child may be ahead
	Root     bool // it has no parent
	Results  Results
	// Casts says which children may get results of up to MaxCast bytes by a cast: by child. nil: none.
	Casts []bool
}

// Node is an aggregation node's part in one group. It keeps at most Window operands of each child,
// and twice as many results.
type Node struct {
	NodeConfig
	done     uint64 // fragments below were folded, and the whole result is here
	open     []fragment
	complete []uint64       // have all operands, and wait until there is room for a result
	reading  map[uint64]int // results that frames still read: how many
	held     []uint64       // by child: it has the responses below
	passed   uint64         // what was told of that: to the parent, or by the root to the children
	casting  casting
}

// fragment is what is known of one that is not done.
type fragment struct {
	first   int     // the child that request is of; -1: nobody's
	request Request // of the first child
	have    []state // by child
	missing int     // operands that are not whole
	ended   bool    // the result is here
}

// state is how far a child's operand has come.
type state uint8

const (
	absent state = iota
	coming       // it is being received
	whole
)

// NewNode makes a node's part. It panics when there are no children or no window.
func NewNode(c NodeConfig) *Node {
	if c.Children < 1 || c.Window < 1 {
		panic(fmt.Sprintf("sharp: a node of %d children, window %d", c.Children, c.Window))
	}
	n := &Node{NodeConfig: c, open: make([]fragment, c.Window), reading: make(map[uint64]int),
		held: make([]uint64, c.Children), casting: newCasting(c)}
	for i := range n.open {
		n.open[i].have = make([]state, c.Children)
		n.open[i].reset()
	}
	return n
}

func (f *fragment) reset() {
	clear(f.have)
	f.first, f.request, f.missing, f.ended = -1, Request{}, len(f.have), false
}

// Place takes note that a child's operand is being received, until Arrived or Torn. An error says
// what no correct child sends, or, as a *DisagreeError, what the children don't agree on.
func (n *Node) Place(child int, number uint64, r Request) error {
	if number < n.done || number >= n.done+uint64(n.Window) {
		return fmt.Errorf("fragment %d of child %d, which may send %d to %d", number, child, n.done,
			n.done+uint64(n.Window)-1)
	}
	f := n.at(number)
	if f.have[child] != absent {
		return fmt.Errorf("fragment %d of child %d came before", number, child)
	}
	switch {
	case f.first < 0:
		f.first, f.request = child, r
	case f.request != r:
		return &DisagreeError{Number: number, A: f.first, B: child, OfA: f.request, OfB: r}
	}
	f.have[child] = coming
	return nil
}

// Torn takes back a Place.
func (n *Node) Torn(child int, number uint64) { n.at(number).have[child] = absent }

// Arrived says that a child's operand is whole.
func (n *Node) Arrived(child int, number uint64, out []Action) []Action {
	if window := uint64(n.Window); number >= window {
		out = n.has(child, number+1-window, out) // else it would not have sent this one
	}
	f := n.at(number)
	f.have[child] = whole
	if f.missing--; f.missing > 0 {
		return out
	}
	n.complete = append(n.complete, number)
	return n.fold(out)
}

// fold begins what has all operands, while there is room for results.
func (n *Node) fold(out []Action) []Action {
	for len(n.complete) > 0 && len(n.reading) < 2*n.Window {
		number := n.complete[0]
		n.complete = append(n.complete[:0], n.complete[1:]...)
		n.reading[number] = n.Children
		if !n.Root {
			n.reading[number]++
		}
		out = append(out, Action{Kind: Fold, Number: number})
	}
	return out
}

// Folded says that the value of a fragment is there.
func (n *Node) Folded(number uint64, out []Action) []Action {
	if n.Root {
		return n.respond(number, out)
	}
	return append(out, Action{Kind: Forward, Number: number})
}

// Returned says that a fragment's result is there. The second of two that a parent sends at once
// changes nothing.
func (n *Node) Returned(number uint64, out []Action) []Action {
	if !n.Expects(number) {
		return out
	}
	return n.respond(number, out)
}

func (n *Node) respond(number uint64, out []Action) []Action {
	f := n.at(number)
	cast := n.casts(&f.request)
	f.ended = true
	// Before the responses: a child that has one may send the fragment that takes its place.
	for n.at(n.done).ended {
		n.at(n.done).reset()
		n.done++
	}
	if cast {
		n.reading[number]++
		out = append(out, Action{Kind: Cast, Number: number})
	}
	for child := range n.Children {
		if !cast || !n.waits(child, number) {
			out = append(out, Action{Kind: Respond, Number: number, Child: child})
		}
	}
	return out
}

// Expects reports whether a parent may send the result of a fragment.
func (n *Node) Expects(number uint64) bool {
	return !n.Root && number >= n.done && number < n.done+uint64(n.Window) &&
		n.at(number).missing == 0 && !n.at(number).ended && n.reading[number] > 0
}

// Released says that a frame has let go of a fragment's memory.
func (n *Node) Released(number uint64, out []Action) []Action {
	if n.reading[number]--; n.reading[number] > 0 {
		return out
	}
	delete(n.reading, number)
	return n.fold(append(out, Action{Kind: Free, Number: number}))
}

// Held says that a child, and all below it, has the responses below number. Older news is ignored;
// an error is a claim that can't be true.
func (n *Node) Held(child int, number uint64, out []Action) ([]Action, error) {
	if number > n.done {
		return out, fmt.Errorf("child %d says that it has the responses below %d, those below %d are sent",
			child, number, n.done)
	}
	out = n.has(child, number, out)
	n.held[child] = max(n.held[child], number)
	least := number
	for _, h := range n.held {
		least = min(least, h)
	}
	if least <= n.passed {
		return out, nil
	}
	n.passed = least
	if n.Root {
		return n.settle(least, out), nil
	}
	return append(out, Action{Kind: Hold, Number: least}), nil
}

// Settled takes the parent's word that everybody has the responses below number. An error is a
// claim that can't be true: everybody has them only when this node has said so of those below it.
func (n *Node) Settled(number uint64, out []Action) ([]Action, error) {
	if n.Root || number > n.passed {
		return out, fmt.Errorf("fragments below %d are said to be settled, of those below %d this node said "+
			"that they are held", number, n.passed)
	}
	return n.settle(number, out), nil
}

func (n *Node) settle(number uint64, out []Action) []Action {
	for child := range n.Children {
		out = append(out, Action{Kind: Settle, Number: number, Child: child})
	}
	return out
}

func (n *Node) at(number uint64) *fragment { return &n.open[number%uint64(n.Window)] }
