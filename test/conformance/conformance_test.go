package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/seeds"
	"github.com/polyrail/polyrail/test/testbed"
)

var (
	all    = flag.Bool("all", false, "run every case of three ranks, and more ranks")
	sample = flag.Int("sample", 3000, "cases besides the pairwise cover")
)

// TestNodesEqualTheReference runs the chosen cases, all of one bed on the same nodes.
func TestNodesEqualTheReference(t *testing.T) {
	byBed := make(map[bedKey][]*testCase)
	count := 0
	for _, c := range choose(t) {
		key := bedKey{c.ranks, c.rails, c.variant}
		byBed[key] = append(byBed[key], c)
		count++
	}
	var keys []bedKey
	for key := range byBed {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b bedKey) int {
		return cmp.Or(a.ranks-b.ranks, a.rails-b.rails, a.variant-b.variant)
	})
	t.Logf("%d cases on %d groups of nodes", count, len(keys))
	for _, key := range keys {
		t.Run(key.String(), func(t *testing.T) {
			t.Parallel()
			bubble.Nodes(t, func(t *testing.T) { run(t, key, byBed[key]) })
		})
	}
}

// choose picks the cases of this run.
func choose(t *testing.T) (chosen []*testCase) {
	ranks, drawn := fewRanks, *sample
	if *all {
		ranks, drawn = manyRanks, allSample
	}
	universe := points(ranks)
	seed, one := seeds.One()
	if !one {
		seed = 1
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	in := make(map[point]bool)
	for _, p := range cover(universe, rng) {
		in[p] = true
	}
	t.Logf("%d of %d cases cover all pairs; -seed %d draws %d more", len(in), len(universe), seed, drawn)
	if *all {
		for _, p := range universe {
			if p[ofRanks] == 3 {
				in[p] = true
			}
		}
	}
	if !testing.Short() {
		for range drawn {
			in[universe[rng.IntN(len(universe))]] = true
		}
	}
	for _, p := range universe { // an order that the seed decides, too
		if in[p] {
			chosen = append(chosen, p.testCase())
		}
	}
	rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen
}

// allSample is the number of cases drawn with -all.
const allSample = 200_000

// bedKey is what nodes are started for.
type bedKey struct{ ranks, rails, variant int }

func (k bedKey) String() string {
	return fmt.Sprintf("ranks=%d/rails=%d/variant=%d", k.ranks, k.rails, k.variant)
}

// host is where a node runs. Ranks are in the order of names.
func (k bedKey) host(name string) string {
	var names []string
	for i := range k.ranks {
		names = append(names, testbed.NodeName(i))
	}
	slices.Sort(names)
	return fmt.Sprintf("host%d", hosts(k.ranks, k.variant)[slices.Index(names, name)])
}

// options of a bed: variant 0 has equal weights and the usual eager limit; in variant 1 the
// weights are far apart and nearly everything waits for grants. Hosts are other ones, too.
func (k bedKey) options() testbed.Options {
	return testbed.Options{Nodes: k.ranks, Rails: k.rails, Adapt: func(c *polyrail.Config) {
		c.SplitBytes = 0
		c.BcubeBase = bcubeBase
		c.Host = k.host(c.Name)
		if k.variant == 1 {
			c.EagerBytes = 1 << 10
			for r := range c.Rails {
				c.Rails[r].Weight = []uint32{1, 30, 5}[r]
			}
		}
	}}
}

// run plays the cases of one bed.
func run(t *testing.T, key bedKey, cases []*testCase) {
	nodes, err := testbed.Start(t.Context(), key.options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	comms, err := nodes.Form(ctx, "conformance")
	cancel()
	if err == nil {
		err = nodes.Each(func(i int) error { return play(comms[i], cases) })
	}
	if err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := nodes.Close(ctx); err != nil {
		t.Error(err)
	}
}

const barrierEvery = 16 // cases

// play runs the cases on one rank. Half-way rank 0 turns the weights round: the results must not care.
func play(comm *polyrail.Communicator, cases []*testCase) error {
	for i, c := range cases {
		if i == len(cases)/2 && comm.Rank() == 0 {
			if err := turnWeights(comm); err != nil {
				return err
			}
		}
		if err := c.check(comm, i); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if (i+1)%barrierEvery == 0 {
			if err := comm.Barrier(context.Background()); err != nil {
				return err
			}
			// Nobody needs the operands of the cases before it any more.
			for _, over := range cases[i+1-barrierEvery : i+1] {
				if comm.Rank() == 0 {
					over.forget()
				}
			}
		}
	}
	return nil
}

func turnWeights(comm *polyrail.Communicator) error {
	table := comm.Table()
	for _, e := range table.Entries {
		slices.Reverse(e.Weights)
	}
	return comm.SetTable(context.Background(), table)
}

// check calls the operation, in place or not, and compares the result.
func (c *testCase) check(comm *polyrail.Communicator, number int) error {
	c.prepare()
	r := comm.Rank()
	own, want := c.operands[r], c.expected[r]
	inPlace := (number+r)%2 == 0
	src, dst := c.memory(r, inPlace)
	o := polyrail.Operation{Kind: c.kind, DType: c.dtype, Op: operator(c.code, c.dtype),
		Root: c.root, Dst: dst, Src: src}
	if c.kind == op.KindBroadcast && r == c.root {
		o.Dst = src
	}
	options := []polyrail.Option{polyrail.WithAlgorithm(c.algorithm)}
	if c.amount.cut != equal {
		options = append(options, polyrail.WithCounts(c.counts()...))
	}
	if err := comm.Run(context.Background(), o, options...); err != nil {
		return err
	}
	if !inPlace && !bytes.Equal(src, own) {
		return errors.New("the source was changed")
	}
	return compare(c.dtype, dst, want)
}

// memory is a rank's operand and the place of its result, in place as the kind has it.
func (c *testCase) memory(r int, inPlace bool) (src, dst []byte) {
	own, result := c.operands[r], len(c.expected[r])
	if !inPlace {
		src, dst = alignedBytes(len(own)), alignedBytes(result)
		copy(src, own)
		return src, dst
	}
	at := 0 // where the rank's part begins in the larger one
	if len(own) != result && divided(c.kind) && min(len(own), result) > 0 {
		for _, count := range c.counts()[:r] {
			at += count * c.dtype.Size()
		}
	}
	memory := alignedBytes(max(len(own), result))
	src, dst = memory[:len(own)], memory[:result]
	if len(own) < result {
		src = memory[at : at+len(own)]
	} else {
		dst = memory[at : at+result]
	}
	copy(src, own)
	return src, dst
}

func compare(d op.DType, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for at := 0; ; at += d.Size() {
		if got, want := got[at:at+d.Size()], want[at:at+d.Size()]; !bytes.Equal(got, want) {
			return fmt.Errorf("element %d is %x, want %x", at/d.Size(), got, want)
		}
	}
}

// TestTheReferenceIsWhatItSays checks the reference itself on results worked out by hand.
func TestTheReferenceIsWhatItSays(t *testing.T) {
	half := func(f float32) uint64 { return uint64(op.ToFloat16(f)) }
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"int8 wraps around", combine(op.Int8, op.CodeSum, 127, 1), 0x80},
		{"int8 division truncates toward zero", divide(op.Int8, 0xf9, 2), 0xfd}, // -7/2 = -3
		{"uint64 division is unsigned", divide(op.Uint64, 1<<63, 2), 1 << 62},
		{"float16 overflows to infinity", combine(op.F16, op.CodeSum, half(65504), half(65504)), 0x7c00},
		{"float16 rounds to even", combine(op.F16, op.CodeSum, half(2048), half(1)), half(2048)},
		{"NaN is canonical", combine(op.F32, op.CodeMax, 0xffc12345, 0), 0x7fc00000},
		{"-0 is below +0", combine(op.F32, op.CodeMin, 0, 0x80000000), 0x80000000},
		{"user operator", combine(op.Uint8, op.CodeUser, 100, 1), 45}, // 301 mod 256
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

// TestTheCoverHasAllPairs: every pair of properties that any case has is in the cover.
func TestTheCoverHasAllPairs(t *testing.T) {
	all := points(fewRanks)
	chosen := cover(all, rand.New(rand.NewPCG(7, 7)))
	met := new(pairs)
	for _, p := range chosen {
		met.add(p)
	}
	for _, p := range all {
		if met.fresh(p) > 0 {
			t.Fatalf("%v has a pair that the cover lacks", p.testCase())
		}
	}
	t.Logf("%d of %d cases", len(chosen), len(all))
}
