// Package schedule holds the algorithms of collective operations as data: for each
// rank the steps that it takes, as a small program over blocks in which every value is
// defined once. The same program runs for every span of a plan.
//
// It owns who sends what to whom, where values live and in which order operands are
// folded. It knows neither bytes nor rails (collective/plan), nor when an instruction
// runs (collective/task). Package schedule/reference evaluates it.
//
// A new collective is a file with its builders, its lines in the tables of kinds.go, and
// its cost in cost.go.
package schedule

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Value names what an instruction defines by the instruction's index in Program.Code, or
// is the Input of a block.
type Value int32

// Input is the rank's own operand of a block: the user's source memory.
func Input(block int) Value { return Value(-1 - block) }

// Input reports whether v is the input of a block, and of which.
func (v Value) Input() (block int, ok bool) { return int(-1 - v), v < 0 }

// None is a range that a block doesn't have at a rank.
const None = -1

// Block is a part of the operation's data as one rank sees it. All lanes of an operation
// have the same blocks.
type Block struct {
	Part int // of the operation's partition, whose length it has
	// Part at whose beginning it lies in the user's source memory; None: it has no operand here.
	Source int
	// Part at whose beginning it lies in the user's destination memory; None: no result is wanted
	// here.
	Target int
}

// PlaceKind is a kind of memory that a value lives in.
type PlaceKind uint8

// The kinds of memory.
const (
	Nowhere PlaceKind = iota // a Send defines no value
	Scratch                  // a slot of the operation's own memory
	Final                    // the user's destination memory: its block's Target
)

// Place is where a value lives. An Input lives in the user's source memory, which in an
// in-place operation is the same as Final for a block that has both.
type Place struct {
	Kind PlaceKind
	Slot int // of Scratch: index in Program.Slots
}

// InstrKind is what an instruction does.
type InstrKind uint8

// The kinds of instruction.
const (
	Recv   InstrKind = iota // receive a frame
	Reduce                  // fold the arguments, left to right
	Copy                    // put together the value's blocks, which lie in the arguments
	Send                    // send the argument
)

// Instr is one instruction. A value is as wide as its Blocks: their parts of a span, one
// after the other. Only a Copy makes a wide value of others, or takes a part of one.
type Instr struct {
	Kind InstrKind
	// Reduce, Copy: the result is the final value over all ranks (here an average is divided).
	Last   bool
	Blocks []int   // what its value consists of; of a Send: what it sends
	Step   int     // Recv, Send: with Mark, names the frame at its receiver
	Mark   int     // Recv, Send: a block's number in the receiver's program
	Peer   op.Rank // Recv: from whom. Send: to whom
	Link   int     // index of Peer in Program.From (Recv) or Program.To (Send)
	// Args: Reduce: at least two. Its value may overwrite the first or second of them; with
	// more than two it does, or none of them. All are as wide as its value. Send: one. Copy: one or
	// more.
	Args  []Value
	Store Place // where the value goes
	// Hazards are what must be done with the user's source before this instruction may write
	// Final, where both are the same memory: a Send released, a kernel done. A Recv has none:
	// what is received into Final depends on the arrival of every frame that was sent from
	// there (a test proves it).
	Hazards []Value
	// After are instructions that must be done before this one begins, for pacing alone.
	After []Value

	Pieces []Value // Copy: by block of its value, the argument that holds it

	// Derived by Build.
	Uses    []Value // instructions that have this one among their Args or in their After
	Frees   []Value // instructions that have this one among their Hazards
	User    bool    // reads or writes the user's memory
	Scratch bool    // reads or writes scratch
}

// Spec says whose part of which algorithm a Program is.
type Spec struct {
	Kind      op.Kind
	Algorithm op.Algorithm
	Rank      op.Rank
	N         int     // ranks
	Root      op.Rank // 0 where the kind has none
	Base      int     // Bcube's largest group, at least 2; the others ignore it
	InPlace   bool    // AllToAll: source and destination are the same memory
	// Hosts are those of the ranks, for algorithms by host; the same pointer where they are the same.
	Hosts *Hosts
}

// Program is one rank's part of an algorithm. It is immutable and may be shared.
type Program struct {
	Spec
	Blocks   []Block
	Parts    int       // of the operation's partition
	Steps    int       // steps are 0 … Steps-1
	Slots    [][]int   // scratch slots of one span: the blocks that each has room for
	Code     []Instr   // a value is defined before it is used
	From, To []op.Rank // the distinct ranks that send to this one, that it sends to; ascending

	recvs [][]Value // by mark, ascending by step
}

// MaxRanks bounds the number of ranks of a schedule.
const MaxRanks = 1 << 17

// Build makes a program. An error names the argument that makes no sense.
func Build(s Spec) (*Program, error) {
	build, ok := forms[form{formOf(s.Kind), s.Algorithm}]
	switch {
	case s.N < 1 || s.N > MaxRanks:
		return nil, fmt.Errorf("schedule: %d ranks, can be 1 to %d", s.N, MaxRanks)
	case s.Rank < 0 || int(s.Rank) >= s.N:
		return nil, fmt.Errorf("schedule: rank %d of %d", s.Rank, s.N)
	case s.Root < 0 || int(s.Root) >= s.N || s.Root != 0 && !s.Kind.Rooted():
		return nil, fmt.Errorf("schedule: %v among %d ranks with root %d", s.Kind, s.N, s.Root)
	case !ok:
		return nil, fmt.Errorf("schedule: no schedule for %v by algorithm %v", s.Kind, s.Algorithm)
	case s.Hosts != nil && len(s.Hosts.of) != s.N:
		return nil, fmt.Errorf("schedule: hosts of %d ranks, there are %d", len(s.Hosts.of), s.N)
	case s.Algorithm == op.Bcube && s.Base < 2:
		return nil, fmt.Errorf("schedule: bcube of base %d, need at least 2", s.Base)
	}
	b := &builder{p: &Program{Spec: s, Parts: Parts(s.Kind, s.Algorithm, s.N)}}
	if s.N == 1 {
		b.alone()
	} else {
		build(b)
	}
	return b.finish(), nil
}

// FindRecv is the instruction that receives the frame (mark, step), whose numbers come
// from a header and may be anything.
func (p *Program) FindRecv(mark, step int) (v Value, ok bool) {
	if mark < 0 || mark >= len(p.recvs) {
		return 0, false
	}
	recvs := p.recvs[mark]
	low, high := 0, len(recvs)
	for low < high {
		if mid := (low + high) / 2; p.Code[recvs[mid]].Step < step {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(recvs) || p.Code[recvs[low]].Step != step {
		return 0, false
	}
	return recvs[low], true
}
