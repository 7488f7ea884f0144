// Package reference evaluates schedules the dumb way, and states independently of them
// in which order operands are folded. Tests compare the two, and results with either.
//
// It owns no decision; nothing but tests imports it.
package reference

import (
	"fmt"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Evaluate runs the programs of all ranks for one owner's block and returns each rank's
// final value. T is whatever combine works on: numbers, buffers, or expressions. An error
// says which rank waits for which frame for ever, or what was received or written twice.
// combine must leave its arguments alone.
func Evaluate[T any](programs []*schedule.Program, owner int, input func(op.Rank) T, combine func(a, b T) T) ([]T, error) {
	e := evaluation[T]{
		wire:   map[frame]message[T]{},
		values: make([]map[schedule.Value]T, len(programs)),
		final:  make([]T, len(programs)),
	}
	for r := range programs {
		e.values[r] = map[schedule.Value]T{schedule.Input: input(op.Rank(r))}
	}
	for progress := true; progress; {
		progress = false
		for r, p := range programs {
			for v, in := range p.ByOwner[owner] {
				did, err := e.run(op.Rank(r), schedule.Value(v), in, combine)
				if err != nil {
					return nil, err
				}
				progress = progress || did
			}
		}
	}
	received := 0
	for r, p := range programs {
		finals := 0
		for v, in := range p.ByOwner[owner] {
			if _, done := e.values[r][schedule.Value(v)]; !done {
				return nil, fmt.Errorf("rank %d never gets to instruction %d of owner %d: %+v", r, v, owner, in)
			}
			if in.Kind == schedule.Recv {
				received++
			}
			if in.Store.Kind == schedule.Final {
				finals++
			}
		}
		if finals != 1 {
			return nil, fmt.Errorf("rank %d writes the final value of owner %d %d times", r, owner, finals)
		}
	}
	if received != len(e.wire) {
		return nil, fmt.Errorf("%d frames of owner %d are sent, %d received", len(e.wire), owner, received)
	}
	return e.final, nil
}

// evaluation is what the ranks have so far.
type evaluation[T any] struct {
	wire   map[frame]message[T]
	values []map[schedule.Value]T // by rank
	final  []T                    // by rank
}

type frame struct {
	to   op.Rank
	step int
}

type message[T any] struct {
	from  op.Rank
	value T
}

// run carries out an instruction, if it hasn't been and can be.
func (e *evaluation[T]) run(r op.Rank, v schedule.Value, in schedule.Instr, combine func(a, b T) T) (bool, error) {
	values := e.values[r]
	if _, done := values[v]; done {
		return false, nil
	}
	var result T
	if in.Kind == schedule.Recv {
		m, ok := e.wire[frame{r, in.Step}]
		if !ok {
			return false, nil
		}
		if m.from != in.Peer {
			return false, fmt.Errorf("rank %d step %d comes from rank %d, not %d", r, in.Step, m.from, in.Peer)
		}
		result = m.value
	}
	for i, a := range in.Args {
		x, ok := values[a]
		if !ok {
			return false, nil
		}
		if i == 0 {
			result = x
		} else {
			result = combine(result, x)
		}
	}
	if in.Kind == schedule.Send {
		f := frame{in.Peer, in.Step}
		if _, sent := e.wire[f]; sent {
			return false, fmt.Errorf("rank %d gets two frames of step %d", f.to, f.step)
		}
		e.wire[f] = message[T]{r, result}
	}
	if in.Store.Kind == schedule.Final {
		e.final[r] = result
	}
	values[v] = result
	return true, nil
}

// Fold is the final value of an owner's block by the declared order of the algorithm
// (DESIGN §4.3), from first principles:
//
//   - ring: from left to right over the ranks owner+1, owner+2, …, owner;
//   - recursive doubling: each odd one of the first 2(n-2^k) ranks is folded into its left
//     neighbour, then halves into wholes, the lower half first;
//   - bcube: groups of consecutive ranks from left to right, then groups of those, by the
//     sizes that schedule.Dimensions names;
//   - tree: the same by groups of schedule.TreeRadix, the last one being what is left.
//
// combine may reuse the memory of its first argument if input returns fresh values.
func Fold[T any](a op.Algorithm, n, base, owner int, input func(op.Rank) T, combine func(a, b T) T) T {
	var operands []T
	switch a {
	case op.Ring:
		for i := 1; i <= n; i++ {
			operands = append(operands, input(op.Rank((owner+i)%n)))
		}
		return group(operands, n, combine)[0]
	case op.RecursiveDoubling:
		whole := 1
		for whole*2 <= n {
			whole *= 2
		}
		for r := 0; r < n; r++ {
			v := input(op.Rank(r))
			if r < 2*(n-whole) {
				r++
				v = combine(v, input(op.Rank(r)))
			}
			operands = append(operands, v)
		}
		for len(operands) > 1 {
			operands = group(operands, 2, combine)
		}
		return operands[0]
	case op.Bcube:
		for r := range n {
			operands = append(operands, input(op.Rank(r)))
		}
		for _, size := range schedule.Dimensions(n, base) {
			operands = group(operands, size, combine)
		}
		return operands[0]
	case op.Tree:
		for r := range n {
			operands = append(operands, input(op.Rank(r)))
		}
		for len(operands) > 1 {
			operands = group(operands, schedule.TreeRadix, combine)
		}
		return operands[0]
	}
	panic(fmt.Sprintf("reference: no order declared for %v", a))
}

// group folds each size consecutive operands into one, the last group being what is left, from left to right.
func group[T any](operands []T, size int, combine func(a, b T) T) []T {
	var out []T
	for i := 0; i < len(operands); i += size {
		v := operands[i]
		for _, x := range operands[i+1 : min(i+size, len(operands))] {
			v = combine(v, x)
		}
		out = append(out, v)
	}
	return out
}

// AllReduce is the allreduce of the ranks' equally long buffers by the declared order,
// without the division of an average. combine has the contract of op.Combine.
func AllReduce(a op.Algorithm, base, elemSize int, inputs [][]byte, combine op.Combine) ([]byte, error) {
	n := len(inputs)
	l := plan.NewLayout(len(inputs[0]), elemSize, schedule.Owners(a, n))
	out := make([]byte, l.Bytes)
	var err error
	for o := range l.Owners {
		off, length := l.Range(0, l.Rounds, o)
		input := func(r op.Rank) []byte {
			return append([]byte(nil), inputs[r][off:off+length]...)
		}
		copy(out[off:], Fold(a, n, base, o, input, func(x, y []byte) []byte {
			if e := combine(x, x, y); e != nil {
				err = e
			}
			return x
		}))
	}
	return out, err
}
