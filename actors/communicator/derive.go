package communicator

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
)

// This file is about communicators that are made of another one: by calls of all its ranks, without
// a ballot. The child's wire id follows from parent, seq and color. Each member registers it when
// it enters the barrier that makes it, so that nobody is early.

// Dup makes a second communicator of the same members, which begins with the table in force here.
// It takes a seq of this one.
func (c *Communicator) Dup(ctx context.Context) (*Communicator, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	ranks := make([]op.Rank, c.Group.Size)
	for i := range ranks {
		ranks[i] = op.Rank(i)
	}
	return c.derive(ctx, &engine.Request{Kind: op.KindDup}, ranks, 0)
}

// Sub makes a communicator of some members: rank i of it is ranks[i] of this one. All members call
// it with the same ranks; those that aren't among them get nil. It takes a seq of this one.
func (c *Communicator) Sub(ctx context.Context, ranks []int) (*Communicator, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	g := c.Group
	members := make([]op.Rank, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= g.Size || slices.Contains(ranks[:i], r) {
			err := fmt.Errorf("communicator %q: Sub: rank %d of %d is out of range or named twice: %w",
				g.Name, r, g.Size, fault.ErrArgument)
			g.Fail(err, 0) // the others may have called right
			return nil, err
		}
		members[i] = op.Rank(r)
	}
	return c.derive(ctx, &engine.Request{Kind: op.KindSub, Name: fmt.Sprint(ranks)}, members, 0)
}

// Split makes a communicator of all members with the same color, in the order of their keys, and of
// their ranks where keys are equal. A member whose color is negative gets nil. It takes two seqs of
// this one.
func (c *Communicator) Split(ctx context.Context, color, key int) (*Communicator, error) {
	g := c.Group
	all := make([]int64, 2*g.Size)
	mine := all[2*g.Rank : 2*g.Rank+2]
	mine[0], mine[1] = int64(color), int64(key)
	work, err := c.Start(ctx, &engine.Request{Kind: op.KindAllGather, DType: op.Int64, Name: "polyrail split",
		Src: op.Bytes(mine), Dst: op.Bytes(all), Internal: true})
	if err == nil {
		err = work.Wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	var members []op.Rank
	for r := range g.Size {
		if color >= 0 && all[2*r] == int64(color) {
			members = append(members, op.Rank(r))
		}
	}
	slices.SortStableFunc(members, func(a, b op.Rank) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return c.derive(ctx, &engine.Request{Kind: op.KindSplit}, members, uint64(color)+1)
}

// derive makes a communicator of some members, with a barrier of all, for a call that was admitted:
// a context that has ended since breaks this one. It is nil where this rank is none of them. Ranks
// compare the request; those of one communicator give the same color.
func (c *Communicator) derive(ctx context.Context, r *engine.Request, members []op.Rank,
	color uint64) (*Communicator, error) {
	n, g := c.Group.node, c.Group
	var child *Group
	r.Internal = true
	work, err := c.start(ctx, r, func(seq uint64, t *table.Table) {
		if slices.Contains(members, g.Rank) {
			child = n.derive(g, childID(g.ID, seq, color), seq, members, t)
		}
	})
	if err == nil {
		err = work.Wait(ctx)
	}
	if err == nil && child != nil {
		if !child.Meshed { // not before all have registered it: who has not would take it for closed
			child.HeedLinks()
		}
		err = child.Usable()
	}
	if err != nil {
		if child != nil {
			child.Fail(err, 0) // on other ranks the call may have succeeded
			n.Registry.Unregister(child)
		}
		return nil, err
	}
	if child == nil {
		return nil, nil
	}
	handle := n.Registry.Open(child)
	child.Announce()
	return handle, nil
}

// derive registers the communicator that some members of parent make under seq. It holds the
// parent's peers: they and their connections are shared.
func (n *Node) derive(parent *Group, id, seq uint64, members []op.Rank, first *table.Table) *Group {
	nodes, procs := make([]string, len(members)), make([]uint64, len(members))
	hosts := make([]view.Host, len(members))
	for i, r := range members {
		nodes[i], procs[i], hosts[i] = parent.Nodes[r], parent.Procs[r], parent.Hosts[r]
	}
	if first.Trees != nil { // they are the parent's
		first = &table.Table{Version: first.Version, Entries: first.Entries}
	}
	rank := op.Rank(slices.Index(members, parent.Rank))
	g := n.NewGroup(id, fmt.Sprintf("%s/%d", parent.Name, seq), rank, nodes, hosts, first)
	g.Procs, g.Job = procs, parent.Job
	for i, r := range members {
		if p := parent.Peers[r]; p != nil {
			g.Attach(op.Rank(i), p)
			n.Fabric.Retain(p)
		}
	}
	g.Meshed = parent.Meshed
	n.Registry.Register(g)
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
