//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/polyrail/polyrail"
)

// pairsEnv makes this test's program a rank of two clusters: one uses all rails, the other
// the best one alone. Its value is a pairsConfig.
const pairsEnv = "POLYRAIL_NETLAB_PAIRS"

// pairsConfig is what a rank is told.
type pairsConfig struct {
	Name   string
	Here   string   // address that gossip listens on
	First  string   // and that of the first host
	Rails  []string // devices, the best one first
	Ranks  int
	Sizes  []int // bytes
	Settle int   // operations of a size that don't count
	Pairs  int
}

// pairsLine is what rank 0 tells of one size.
type pairsLine struct {
	Bytes      int
	Times      []time.Duration  // of operations over all rails, one after the other, after the first Settle
	All, Alone []time.Duration  // medians, by pair
	Sent       map[string]int64 // by rail, in the last pair
}

// pairsChild runs pairs of blocks of operations, one over all rails and one over the best, size
// after size. A block lasts about blockTime.
func pairsChild(c pairsConfig) error {
	const (
		blockTime  = 100 * time.Millisecond
		leastTimed = 20 // operations that aren't paired: those are after a pause, which TCP begins slowly after
	)
	ctx := context.Background()
	all, err := join(ctx, c, "all", "7946", c.Rails)
	if err != nil {
		return err
	}
	alone, err := join(ctx, c, "alone", "7947", c.Rails[:1])
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, size := range c.Sizes {
		buf := make([]float32, size/4)
		if _, err := all.block(ctx, buf, c.Settle); err != nil {
			return err
		}
		warm, err := alone.block(ctx, buf, 3)
		if err != nil {
			return err
		}
		times := []int64{0}
		if all.comm.Rank() == 0 {
			times[0] = int64(min(max(blockTime/median(warm), 1), 10_000))
		}
		if err := polyrail.AllReduce(ctx, all.comm, times, polyrail.Sum); err != nil {
			return err
		}
		l := pairsLine{Bytes: size}
		if l.Times, err = all.block(ctx, buf, max(int(times[0]), leastTimed)); err != nil {
			return err
		}
		for pair := range c.Pairs {
			before := sentBy(all.node)
			for i := range 2 {
				m := all
				if (pair+i)%2 == 1 {
					m = alone
				}
				took, err := m.block(ctx, buf, int(times[0]))
				if err != nil {
					return err
				}
				if m == all {
					l.All = append(l.All, median(took))
				} else {
					l.Alone = append(l.Alone, median(took))
				}
			}
			l.Sent = since(before, sentBy(all.node))
		}
		if all.comm.Rank() == 0 {
			if err := out.Encode(l); err != nil {
				return err
			}
		}
	}
	return errors.Join(all.comm.Close(ctx), alone.comm.Close(ctx), all.node.Close(ctx), alone.node.Close(ctx))
}

// member is a rank of one of the two clusters.
type member struct {
	node *polyrail.Node
	comm *polyrail.Communicator
}

// join starts a node as a user would who configures nothing but the rails.
func join(ctx context.Context, c pairsConfig, cluster, port string, devices []string) (*member, error) {
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Cluster, cfg.Bind, cfg.Join = c.Name, cluster, c.Here+":"+port, []string{c.First + ":" + port}
	for _, d := range slices.Sorted(slices.Values(devices)) {
		cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: d, Protocol: "tcp", Device: d})
	}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	comm, err := node.Communicator(ctx, "pairs", c.Ranks)
	return &member{node, comm}, err
}

// block runs operations one by one, with a barrier before each that isn't timed.
func (m *member) block(ctx context.Context, buf []float32, times int) (took []time.Duration, err error) {
	for range times {
		if err := m.comm.Barrier(ctx); err != nil {
			return nil, err
		}
		clear(buf)
		begin := time.Now()
		if err := polyrail.AllReduce(ctx, m.comm, buf, polyrail.Sum); err != nil {
			return nil, fmt.Errorf("%d bytes: %w", 4*len(buf), err)
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}
