// Package schedule holds the algorithms of collective operations as data: for each
// rank the steps that it takes, as a small program per owner in which every value is
// defined once. The same program runs for every span of a plan.
//
// It owns who sends what to whom, where values live and in which order operands are
// folded (DESIGN §4.2, §4.3). It knows neither bytes nor rails (collective/plan), nor when
// an instruction runs (collective/task). Package schedule/reference evaluates it.
package schedule

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
)

// Value names what an instruction defines by the instruction's index in its owner's
// program, or is Input.
type Value int32

// Input is the rank's own operand: the user's source memory.
const Input Value = -1

// PlaceKind is a kind of memory that a value lives in.
type PlaceKind uint8

// The kinds of memory.
const (
	Nowhere PlaceKind = iota // a Send defines no value
	Scratch                  // a slot of the operation's own memory
	Final                    // the user's destination memory
)

// Place is where a value lives. Input lives in the user's source memory, which in an
// in-place operation is the same as Final.
type Place struct {
	Kind PlaceKind
	Slot int // of Scratch: 0 … Program.Slots-1, different for different owners
}

// InstrKind is what an instruction does.
type InstrKind uint8

// The kinds of instruction.
const (
	Recv   InstrKind = iota // receive a frame
	Reduce                  // fold the arguments, left to right
	Copy                    // copy the argument
	Send                    // send the argument
)

// Instr is one instruction.
type Instr struct {
	Kind  InstrKind
	Last  bool    // Reduce, Copy: the result is the final value (here an average is divided)
	Owner int     // whose program it belongs to
	Step  int     // Recv, Send: with Owner, names the frame at its receiver
	Peer  op.Rank // Recv: from whom. Send: to whom
	Link  int     // index of Peer in Program.From (Recv) or Program.To (Send)
	// Args: Reduce: at least two, of which the stored-over one is first or second. Send, Copy: one.
	Args  []Value
	Store Place // where the value goes
	// Hazards are the Sends that must be released before this instruction may write Final,
	// where Final is the memory of Input. Only a Reduce has any: what is received into
	// Final depends on the arrival of every Send of Input (a test proves it).
	Hazards []Value

	// Derived by Build.
	Uses    []Value // instructions that have this one among their Args, or a Send among their Hazards
	User    bool    // reads or writes the user's memory
	Scratch bool    // reads or writes scratch
}

// Program is one rank's part of an algorithm. It is immutable and may be shared.
type Program struct {
	Algorithm op.Algorithm
	Rank      op.Rank
	N         int // ranks
	Owners    int // N, or 1 where the algorithm has no owners
	Steps     int // steps are 0 … Steps-1
	Slots     int // scratch slots of one span, over all owners
	ByOwner   [][]Instr
	From, To  []op.Rank // the distinct ranks that send to this one, that it sends to; ascending

	// Code is all of ByOwner, one after another: ByOwner[o] = Code[Base[o]:Base[o+1]].
	Code []Instr
	Base []int
	// Ready are the indexes in Code of what can run at the start, ordered by step.
	Ready []int

	recvs [][]Value // by owner, ascending by step
}

// MaxRanks bounds the number of ranks of a schedule.
const MaxRanks = 1 << 15

// Owners is the number of owners that the algorithm divides a buffer between.
func Owners(a op.Algorithm, n int) int {
	if a == op.RecursiveDoubling || a == op.Tree {
		return 1
	}
	return n
}

// Build makes the program of one of n ranks. base is Bcube's largest group (at least 2);
// the others ignore it. An error names the argument that makes no sense.
func Build(a op.Algorithm, rank op.Rank, n, base int) (*Program, error) {
	switch {
	case n < 1 || n > MaxRanks:
		return nil, fmt.Errorf("schedule: %d ranks, can be 1 to %d", n, MaxRanks)
	case rank < 0 || int(rank) >= n:
		return nil, fmt.Errorf("schedule: rank %d of %d", rank, n)
	case !a.Valid():
		return nil, fmt.Errorf("schedule: no schedule for algorithm %v", a)
	case a == op.Bcube && base < 2:
		return nil, fmt.Errorf("schedule: bcube of base %d, need at least 2", base)
	}
	b := &builder{p: &Program{Algorithm: a, Rank: rank, N: n, Owners: Owners(a, n)}}
	switch {
	case n == 1:
		b.owner()
		b.add(Instr{Kind: Copy, Last: true, Args: []Value{Input}, Store: Place{Kind: Final}})
	case a == op.Ring:
		b.ring()
	case a == op.RecursiveDoubling:
		b.doubling()
	case a == op.Bcube:
		b.bcube(Dimensions(n, base))
	case a == op.Tree:
		b.tree()
	}
	return b.finish(), nil
}

// FindRecv is the instruction that receives the frame (owner, step), whose numbers come
// from a header and may be anything.
func (p *Program) FindRecv(owner, step int) (v Value, ok bool) {
	if owner < 0 || owner >= p.Owners {
		return 0, false
	}
	recvs, code := p.recvs[owner], p.ByOwner[owner]
	low, high := 0, len(recvs)
	for low < high {
		if mid := (low + high) / 2; code[recvs[mid]].Step < step {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(recvs) || code[recvs[low]].Step != step {
		return 0, false
	}
	return recvs[low], true
}
