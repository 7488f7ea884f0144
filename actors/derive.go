package actors

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

// This file is about communicators that are made of another one: by calls of all its ranks, without a
// ballot. The child's wire id follows from parent, seq and color; each member registers it when it enters the
// barrier that makes it, so that nobody is early.

// Dup makes a second communicator of the same members, which begins with the table in force here. It
// takes a seq of this one.
func (c *Communicator) Dup(ctx context.Context) (*Communicator, error) {
	ranks := make([]op.Rank, c.group.size)
	for i := range ranks {
		ranks[i] = op.Rank(i)
	}
	return c.derive(ctx, ranks, 0, 0)
}

// Sub makes a communicator of some members: rank i of it is ranks[i] of this one. All members call it with the same
// ranks; those that aren't among them get nil. It takes a seq of this one.
func (c *Communicator) Sub(ctx context.Context, ranks []int) (*Communicator, error) {
	g := c.group
	members := make([]op.Rank, len(ranks))
	h := fnv.New64a()
	for i, r := range ranks {
		if r < 0 || r >= g.size || slices.Contains(ranks[:i], r) {
			err := fmt.Errorf("communicator %q: Sub: rank %d of %d is out of range or named twice: %w", g.name, r, g.size, fault.ErrArgument)
			g.node.breakGroup(g, err, 0, true) // the others may have called right
			return nil, err
		}
		members[i] = op.Rank(r)
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(r)))
	}
	return c.derive(ctx, members, h.Sum64(), 0)
}

// Split makes a communicator of all members with the same color, in the order of their keys, and of their
// ranks where keys are equal. A member whose color is negative gets nil. It takes two seqs of this one.
func (c *Communicator) Split(ctx context.Context, color, key int) (*Communicator, error) {
	g := c.group
	all := make([]int64, 2*g.size)
	mine := all[2*g.rank : 2*g.rank+2]
	mine[0], mine[1] = int64(color), int64(key)
	work, err := c.Start(ctx, &Request{Kind: op.KindAllGather, DType: op.Int64, Name: "polyrail split",
		Src: op.Bytes(mine), Dst: op.Bytes(all)})
	if err == nil {
		err = work.Wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	var members []op.Rank
	for r := range g.size {
		if color >= 0 && all[2*r] == int64(color) {
			members = append(members, op.Rank(r))
		}
	}
	slices.SortStableFunc(members, func(a, b op.Rank) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return c.derive(ctx, members, 0, uint64(color)+1)
}

// derive makes a communicator of some members, with a barrier of all. It is nil where this rank is none of them. All
// ranks must give the same salt; those of one communicator the same color.
func (c *Communicator) derive(ctx context.Context, members []op.Rank, salt, color uint64) (*Communicator, error) {
	n, g := c.group.node, c.group
	var child *group
	r := &Request{Kind: op.KindDup, salt: salt, entered: func(seq uint64, t *table.Table) {
		if slices.Contains(members, g.rank) {
			child = n.derive(g, childID(g.id, seq, color), seq, members, t)
		}
	}}
	work, err := c.Start(ctx, r)
	if err == nil {
		err = work.Wait(ctx)
	}
	if err == nil && child != nil {
		err = child.usable()
	}
	if err != nil {
		if child != nil {
			n.breakGroup(child, err, 0, true) // on other ranks the call may have succeeded
			n.unregister(child)
		}
		return nil, err
	}
	if child == nil {
		return nil, nil
	}
	handle := n.open(child)
	child.isFormed()
	return handle, nil
}

// derive registers the communicator that some members of parent make under seq. It holds the parent's peers: they
// and their connections are shared.
func (n *node) derive(parent *group, id, seq uint64, members []op.Rank, first *table.Table) *group {
	nodes, procs := make([]string, len(members)), make([]uint64, len(members))
	for i, r := range members {
		nodes[i], procs[i] = parent.nodes[r], parent.procs[r]
	}
	rank := op.Rank(slices.Index(members, parent.rank))
	g := newGroup(n, id, fmt.Sprintf("%s/%d", parent.name, seq), rank, nodes)
	g.procs, g.first = procs, first
	for i, r := range members {
		if p := parent.peers[r]; p != nil {
			g.attach(op.Rank(i), p)
			n.fabric.Retain(p)
		}
	}
	n.register(g)
	return g
}

// childID is the wire id of the communicator that members with a color make of parent under seq.
func childID(parent, seq, color uint64) uint64 {
	h := fnv.New64a()
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], parent)
	binary.LittleEndian.PutUint64(b[8:], seq)
	binary.LittleEndian.PutUint64(b[16:], color)
	h.Write(b[:])
	return max(h.Sum64(), 1)
}
