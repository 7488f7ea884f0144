// Package reference evaluates schedules the dumb way, and states independently of them
// in which order operands are folded. Tests compare the two, and results with either.
//
// It owns no decision; nothing but tests imports it.
package reference

import (
	"fmt"
	"slices"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/schedule"
)

// Evaluate runs the programs of all ranks and returns, by rank, what each of its results is:
// a map from the part at whose beginning the result lies in the destination. input is a
// rank's operand at a part of its source. T is whatever combine works on: numbers,
// buffers, or expressions; combine must leave its arguments alone. An error says which rank
// waits for which frame for ever, or what was received or written twice.
func Evaluate[T any](programs []*schedule.Program, input func(r op.Rank, part int) T,
	combine func(a, b T) T) ([]map[int]T, error) {
	e := evaluation[T]{
		programs: programs, input: input, combine: combine,
		wire:    map[frame]message[T]{},
		values:  make([]map[schedule.Value][]T, len(programs)),
		results: make([]map[int]T, len(programs)),
	}
	for r := range programs {
		e.values[r], e.results[r] = map[schedule.Value][]T{}, map[int]T{}
	}
	for progress := true; progress; {
		progress = false
		for r, p := range programs {
			for v := range p.Code {
				did, err := e.run(op.Rank(r), schedule.Value(v))
				if err != nil {
					return nil, err
				}
				progress = progress || did
			}
		}
	}
	received := 0
	for r, p := range programs {
		for v, in := range p.Code {
			if _, done := e.values[r][schedule.Value(v)]; !done {
				return nil, fmt.Errorf("rank %d never gets to instruction %d: %+v", r, v, in)
			}
			if in.Kind == schedule.Recv {
				received++
			}
		}
		for k, b := range p.Blocks {
			if _, has := e.results[r][b.Target]; b.Target != schedule.None && !has {
				return nil, fmt.Errorf("rank %d doesn't get its result of block %d", r, k)
			}
		}
	}
	if received != len(e.wire) {
		return nil, fmt.Errorf("%d frames are sent, %d received", len(e.wire), received)
	}
	return e.results, nil
}

// evaluation is what the ranks have so far.
type evaluation[T any] struct {
	programs []*schedule.Program
	input    func(op.Rank, int) T
	combine  func(a, b T) T
	wire     map[frame]message[T]
	values   []map[schedule.Value][]T // by rank: the value's blocks
	results  []map[int]T              // by rank and target
}

type frame struct {
	to         op.Rank
	mark, step int
}

type message[T any] struct {
	from  op.Rank
	value []T
}

// run carries out an instruction, if it hasn't been and can be.
func (e *evaluation[T]) run(r op.Rank, v schedule.Value) (bool, error) {
	p := e.programs[r]
	in := &p.Code[v]
	if _, done := e.values[r][v]; done {
		return false, nil
	}
	for _, a := range append(in.Args, in.After...) {
		if _, isInput := a.Input(); isInput {
			continue
		}
		if _, done := e.values[r][a]; !done {
			return false, nil
		}
	}
	var result []T
	switch in.Kind {
	case schedule.Recv:
		m, ok := e.wire[frame{r, in.Mark, in.Step}]
		if !ok {
			return false, nil
		}
		if m.from != in.Peer {
			return false, fmt.Errorf("rank %d block %d step %d comes from rank %d, not %d", r,
				in.Mark, in.Step, m.from, in.Peer)
		}
		result = m.value
	case schedule.Send:
		result = e.value(r, in.Args[0])
		f := frame{in.Peer, in.Mark, in.Step}
		if _, sent := e.wire[f]; sent {
			return false, fmt.Errorf("rank %d gets two frames of block %d, step %d", f.to, f.mark, f.step)
		}
		e.wire[f] = message[T]{r, result}
	case schedule.Reduce:
		result = slices.Clone(e.value(r, in.Args[0]))
		for _, a := range in.Args[1:] {
			for i, operand := range e.value(r, a) {
				result[i] = e.combine(result[i], operand)
			}
		}
	case schedule.Copy:
		for i, a := range in.Pieces {
			result = append(result, e.block(r, a, in.Blocks[i]))
		}
	}
	if len(result) != len(in.Blocks) {
		return false, fmt.Errorf("rank %d: instruction %d is of %d blocks, and has %d", r, v,
			len(in.Blocks), len(result))
	}
	if in.Store.Kind == schedule.Final {
		target := p.Blocks[in.Blocks[0]].Target
		if _, written := e.results[r][target]; written || target == schedule.None {
			return false, fmt.Errorf("rank %d writes result %d twice, or doesn't want it", r, target)
		}
		e.results[r][target] = result[0]
	}
	e.values[r][v] = result
	return true, nil
}

func (e *evaluation[T]) value(r op.Rank, v schedule.Value) []T {
	if block, ok := v.Input(); ok {
		return []T{e.input(r, e.programs[r].Blocks[block].Source)}
	}
	return e.values[r][v]
}

// block is one of a value's blocks.
func (e *evaluation[T]) block(r op.Rank, v schedule.Value, block int) T {
	if _, ok := v.Input(); ok {
		return e.value(r, v)[0]
	}
	for i, b := range e.programs[r].Code[v].Blocks {
		if b == block {
			return e.values[r][v][i]
		}
	}
	panic(fmt.Sprintf("rank %d: value %d has no block %d", r, v, block))
}
