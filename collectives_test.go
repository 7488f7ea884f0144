package polyrail_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/collective/schedule/reference"
)

// collectiveCase is one operation, of float32 sums where it reduces.
type collectiveCase struct {
	kind      Kind
	algorithm Algorithm
	root      int
	elements  int   // of each rank's part, or of the whole where a kind has no parts
	counts    []int // instead
	inPlace   bool
}

func (c collectiveCase) String() string {
	return fmt.Sprintf("%v by %v, root %d, %d elements, counts %v, in place %v", c.kind,
		c.algorithm, c.root, c.elements, c.counts, c.inPlace)
}

// parts is the division of the operation's data among n ranks, in bytes.
func (c collectiveCase) parts(n int) plan.Parts {
	a := c.algorithm
	if a == Auto {
		a = schedule.Choose(c.kind, int64(4*c.elements*n), n, nil)
	}
	if c.counts != nil {
		var p plan.Parts
		for _, count := range c.counts {
			p = append(p, 4*count)
		}
		return p
	}
	bytes := 4 * c.elements
	if schedule.Parts(c.kind, schedule.Algorithms(c.kind)[0], n) == n && c.kind != KindAllReduce {
		bytes *= n
	}
	if c.algorithm == Auto {
		a = schedule.Choose(c.kind, int64(bytes), n, nil)
	}
	return plan.PartsOf(c.kind, a, n, bytes, nil)
}

// apart are hosts with a rank each.
func apart(n int) (hosts [][]int) {
	for r := range n {
		hosts = append(hosts, []int{r})
	}
	return hosts
}

// play runs the case on all ranks and compares every byte of every buffer.
func (c collectiveCase) play(b *bed, comms []*Communicator) {
	b.t.Helper()
	n := len(comms)
	parts := c.parts(n)
	total := parts.Total()
	a := c.algorithm
	if a == Auto {
		a = schedule.Choose(c.kind, int64(total), n, nil)
	}
	own := func(r int) int {
		if len(parts) == n && c.kind != KindAllReduce {
			return parts[r]
		}
		return total
	}
	inputs := make([][]byte, n)
	for r := range n {
		source, _ := plan.Buffers(c.kind, op.Rank(r), op.Rank(c.root), total, own(r))
		inputs[r] = op.Bytes(fickles(r, source/4))
	}
	add, err := reduce.For(Sum, op.F32)
	if err != nil {
		b.t.Fatal(err)
	}
	want, err := reference.Results(reference.Call{Kind: c.kind, Algorithm: a, Base: orderedBase,
		Root: c.root, Hosts: apart(n), Parts: parts, Inputs: inputs}, add)
	if err != nil {
		b.t.Fatal(err)
	}
	var opts []Option
	if c.counts != nil {
		opts = append(opts, WithCounts(c.counts...))
	}
	if c.algorithm != Auto {
		opts = append(opts, WithAlgorithm(c.algorithm))
	}
	b.each(func(r int) error {
		_, destination := plan.Buffers(c.kind, op.Rank(r), op.Rank(c.root), total, own(r))
		src, dst := c.memory(inputs[r], destination, parts, r)
		o := Operation{Kind: c.kind, DType: op.F32, Op: Sum, Root: c.root, Dst: dst, Src: src}
		if c.kind == KindBroadcast && r == c.root {
			o.Dst = src
		}
		if err := comms[r].Run(b.t.Context(), o, opts...); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if want[r] != nil && !bytes.Equal(dst, want[r]) {
			return fmt.Errorf("%v: wrong result", c)
		}
		if !c.inPlace && !bytes.Equal(src, inputs[r]) {
			return fmt.Errorf("%v: the source has changed", c)
		}
		return nil
	})
}

// memory is a rank's source and destination: in place as the kind has it.
func (c collectiveCase) memory(input []byte, destination int, parts plan.Parts, r int) (src, dst []byte) {
	if !c.inPlace {
		return append([]byte(nil), input...), op.Bytes(slices.Repeat([]float32{-1}, destination/4))
	}
	at := 0
	if len(parts) > 1 && destination != len(input) {
		at = parts[:r].Total()
	}
	memory := op.Bytes(slices.Repeat([]float32{-1},
		max(len(input), destination, at+min(len(input), destination))/4))
	src, dst = memory[:len(input)], memory[:destination]
	if len(input) < destination {
		src = memory[at : at+len(input)]
	} else {
		dst = memory[at : at+destination]
	}
	copy(src, input)
	return src, dst
}

func TestEveryCollectiveByEveryAlgorithm(t *testing.T) {
	for _, n := range []int{1, 2, 4, 5} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			inBed(t, n, 2, func(c *Config) {
				c.Balance, c.BcubeBase, c.SplitBytes = BalanceStatic, orderedBase, 0
			}, func(b *bed) {
				comms := b.form("train")
				for _, k := range Kinds() {
					for _, a := range append([]Algorithm{Auto}, schedule.Algorithms(k)...) {
						for _, elements := range []int{0, 1, 10, 1000, 33_333} {
							if k == KindAllToAll {
								elements *= n
							}
							for _, inPlace := range []bool{false, true} {
								collectiveCase{kind: k, algorithm: a, elements: elements,
									inPlace: inPlace,
									root:    (elements % n) * boolInt(k.Rooted())}.play(b, comms)
							}
						}
					}
				}
			})
		})
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestCountsMayDiffer(t *testing.T) {
	const n = 6 // by Bcube in groups of two, and then of three
	inBed(t, n, 2, func(c *Config) {
		c.Balance, c.SplitBytes, c.BcubeBase = BalanceStatic, 0, orderedBase
	}, func(b *bed) {
		comms := b.form("train")
		for _, k := range []Kind{KindReduceScatter, KindAllGather, KindGather, KindScatter} {
			for _, counts := range [][]int{{0, 1, 2, 3, 0, 5}, {7, 0, 0, 0, 0, 0}, {0, 0, 0, 100_000, 0, 0},
				{50_000, 3, 40_000, 1, 0, 2}} {
				for _, a := range append([]Algorithm{Auto}, schedule.Algorithms(k)...) {
					if a == Ring && slices.Max(counts) < 100 {
						// Small ones are played by their own algorithms.
						continue
					}
					for root := range n {
						if root == 0 || k.Rooted() {
							collectiveCase{kind: k, algorithm: a, counts: counts, root: root,
								inPlace: root%2 == 1}.play(b, comms)
						}
					}
				}
			}
		}
	})
}

// Callers that know the kind at run time only may give a root to any: it broke the communicator.
func TestTheRootOfAKindWithoutOneIsIgnored(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		comms := b.form("train")
		b.each(func(r int) error {
			buf := op.Bytes([]float32{1})
			return comms[r].Run(b.t.Context(),
				Operation{Kind: KindAllReduce, DType: op.F32, Op: Sum, Root: 1, Dst: buf, Src: buf})
		})
	})
}

// Calls that differ are an error that names both: on every rank, if not of the call, then of the
// next one. That holds where no rank gets a frame that it doesn't expect, too, since each waits for
// another.
func TestCollectivesThatDifferAreNamed(t *testing.T) {
	buf := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(b *bed, c *Communicator, r int) error{
		"root of a broadcast": func(b *bed, c *Communicator, r int) error {
			return Broadcast(b.t.Context(), c, buf(10), r%2)
		},
		"root of a large broadcast": func(b *bed, c *Communicator, r int) error {
			return Broadcast(b.t.Context(), c, buf(1_000_000), r)
		},
		"root of a reduce": func(b *bed, c *Communicator, r int) error {
			return Reduce(b.t.Context(), c, buf(10), buf(10), Sum, r)
		},
		"kind": func(b *bed, c *Communicator, r int) error {
			if r == 0 {
				return AllGather(b.t.Context(), c, buf(30), buf(10))
			}
			return AllToAll(b.t.Context(), c, buf(30), buf(30))
		},
		"counts": func(b *bed, c *Communicator, r int) error {
			counts := []int{10, 20, 30}
			if r == 1 {
				counts = []int{20, 20, 20}
			}
			return AllGather(b.t.Context(), c, buf(60), buf(counts[r]), WithCounts(counts...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, 3, 1, nil, func(b *bed) {
				comms := b.form("train")
				start := time.Now()
				for r, err := range b.failures(func(i int) error {
					if err := call(b, comms[i], i); err != nil {
						return err
					}
					return comms[i].Barrier(b.t.Context())
				}) {
					if !errors.Is(err, fault.ErrMismatch) && !errors.Is(err, fault.ErrAborted) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				if took := time.Since(start); took > 3*stallLimit {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// stallLimit is how long operations wait before they ask whether others run the same.
const stallLimit = time.Second

// A call that can't be run says why, and doesn't leave the others waiting.
func TestCallsThatCannotBeRunAreRefused(t *testing.T) {
	buf := make([]float32, 12)
	for _, c := range []struct {
		want string
		call func(b *bed, c *Communicator) error
	}{
		{"root 3 of 3 ranks", func(b *bed, c *Communicator) error {
			return Broadcast(b.t.Context(), c, buf, 3)
		}},
		{"root -1", func(b *bed, c *Communicator) error {
			return Reduce(b.t.Context(), c, buf, buf, Sum, -1)
		}},
		{"destination has 8 bytes, want 24",
			func(b *bed, c *Communicator) error { return AllGather(b.t.Context(), c, buf[:2], buf[2:4]) }},
		{"3 equal parts", func(b *bed, c *Communicator) error {
			return AllToAll(b.t.Context(), c, buf[:4], buf[4:8])
		}},
		{"2 counts for 3 ranks", func(b *bed, c *Communicator) error {
			return AllGather(b.t.Context(), c, buf, buf[:1], WithCounts(1, 2))
		}},
		{"count 1 is -2", func(b *bed, c *Communicator) error {
			return AllGather(b.t.Context(), c, buf, buf[:1], WithCounts(1, -2, 3))
		}},
		{"counts for allreduce", func(b *bed, c *Communicator) error {
			return AllReduce(b.t.Context(), c, buf, Sum, WithCounts(4, 4, 4))
		}},
		{"counts for alltoallv", func(b *bed, c *Communicator) error {
			each := []int{1, 1, 1}
			return AllToAllV(b.t.Context(), c, buf[:3], each, buf[3:6], each, WithCounts(1, 1, 1))
		}},
		{"no schedule for alltoallv by algorithm ring", func(b *bed, c *Communicator) error {
			each := []int{1, 1, 1}
			return AllToAllV(b.t.Context(), c, buf[:3], each, buf[3:6], each, WithAlgorithm(Ring))
		}},
		{"counts for barrier", func(b *bed, c *Communicator) error {
			return waited(b.t, c, WithCounts(1, 1, 1))
		}},
		{"no schedule for barrier by algorithm tree", func(b *bed, c *Communicator) error {
			return waited(b.t, c, WithAlgorithm(Tree))
		}},
		{"average", func(b *bed, c *Communicator) error {
			return Scan(b.t.Context(), c, buf[:3], buf[3:6], Avg)
		}},
		{"overlap", func(b *bed, c *Communicator) error {
			return AllToAll(b.t.Context(), c, buf[:6], buf[3:9])
		}},
		{"overlap", func(b *bed, c *Communicator) error {
			return AllGather(b.t.Context(), c, buf[:6], buf[2*((c.Rank()+1)%3):][:2])
		}},
		{"no schedule for broadcast by algorithm ring", func(b *bed, c *Communicator) error {
			return Broadcast(b.t.Context(), c, buf, 0, WithAlgorithm(Ring))
		}},
	} {
		inBed(t, 3, 1, nil, func(b *bed) {
			comms := b.form("train")
			for r, err := range b.failures(func(i int) error { return c.call(b, comms[i]) }) {
				if err == nil || !strings.Contains(err.Error(), c.want) ||
					strings.Contains(err.Error(), "(0 ×") { // none of them has no elements
					t.Errorf("rank %d: %v, want %q", r, err, c.want)
				}
			}
		})
	}
}

// waited is a barrier with options, which a StartBarrier alone takes.
func waited(t *testing.T, c *Communicator, opts ...Option) error {
	w, err := c.StartBarrier(t.Context(), opts...)
	if err != nil {
		return err
	}
	return w.Wait(t.Context())
}

// A root doesn't wait for those that it sends to, so what it may be ahead must be bounded. Neither
// the others' memory nor the window of operations that they look ahead may overflow.
func TestARootDoesNotRunAway(t *testing.T) {
	for _, elements := range []int{0, 2, 1000} {
		inBed(t, 3, 2, nil, func(b *bed) {
			comms := b.form("train")
			b.each(func(i int) error {
				if i == 2 {
					<-time.After(time.Second) // virtual: it comes when the root is done
				}
				for k := range 6000 {
					buf := slices.Repeat([]int32{int32(k * boolInt(i == 0))}, elements)
					if err := Broadcast(b.t.Context(), comms[i], buf, 0); err != nil {
						return fmt.Errorf("broadcast %d: %w", k, err)
					}
					if elements > 0 && buf[elements-1] != int32(k) {
						return fmt.Errorf("broadcast %d gave %d", k, buf[elements-1])
					}
				}
				return nil
			})
		})
	}
}
