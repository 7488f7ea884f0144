package main

import (
	"context"
	"slices"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
	"github.com/polyrail/polyrail/cmd/node/internal/profile"
)

// group is the communicator as package measure sees it, for one operation of one size.
type group struct {
	*polyrail.Communicator
	node      *polyrail.Node
	operation *operation
	setting   setting
	plot      *plot         // nil: nothing is recorded
	profile   *profile.File // nil: no profile is kept
	csv       *osu.CSV      // of all operations; nil: none yet
}

// Barrier stands before each operation and is not timed: there is time to take notes.
func (g *group) Barrier(ctx context.Context) error {
	g.plot.mark()
	return g.Communicator.Barrier(ctx)
}

func (g *group) Operate(ctx context.Context, dst, src []byte) error {
	g.plot.count()
	return g.operation.call(g.setting, ctx, g.Communicator, dst, src)
}

// Sum names its algorithm, so that the balancer does not count it among the measured operations.
func (g *group) Sum(ctx context.Context, v []int64) error {
	return polyrail.AllReduce(ctx, g.Communicator, v, polyrail.Sum, polyrail.WithAlgorithm(polyrail.RecursiveDoubling))
}

func (g *group) RailBytes() map[string]int64 {
	sent := map[string]int64{}
	for _, r := range g.node.Rails() {
		sent[r.Name] = int64(r.BytesSent)
	}
	if sharesMemory(g.Communicator) { // on all ranks alike
		r, _ := g.node.SharedMemory()
		sent[memoryColumn] = int64(r.BytesSent)
	}
	return sent
}

// memoryColumn is what is printed of the memory within hosts, beside the rails.
const memoryColumn = "shm"

// sharesMemory reports whether members of a host exchange data through memory.
func sharesMemory(c *polyrail.Communicator) bool {
	return slices.ContainsFunc(c.Hosts(), func(h polyrail.Host) bool { return h.SharedMemory })
}
