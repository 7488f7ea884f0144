package bench

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/reduce"
	"github.com/polyrail/polyrail/collective/schedule"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors/dispatch"
)

var quiet = slog.New(slog.DiscardHandler)

// BenchmarkKernel is a reduction while the data is in cache. The rate is that of output.
func BenchmarkKernel(b *testing.B) {
	const bytes = 256 << 10
	for _, o := range []op.Op{op.Sum, op.Min, op.Max, op.MinLoc} {
		for _, d := range op.DTypes {
			if o.Check(d) != nil {
				continue // pairs have operators of their own
			}
			b.Run(fmt.Sprintf("op=%v/dtype=%v/bytes=%d", o, d, bytes), func(b *testing.B) {
				combine, err := reduce.For(o, d)
				if err != nil {
					b.Fatal(err)
				}
				dst, x, y := make([]byte, bytes), make([]byte, bytes), make([]byte, bytes)
				b.SetBytes(bytes)
				b.ReportAllocs()
				for b.Loop() {
					if err := combine(dst, x, y); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFrame is the codec of a frame's header, checksum included.
func BenchmarkFrame(b *testing.B) {
	h := wire.Header{Kind: wire.KindData, Comm: 1, Seq: 2, Number: 3, Ack: 4, Count: 1, Length: 8,
		Desc: op.Descriptor{Kind: op.KindAllReduce, DType: op.F32, Code: op.CodeSum, Algorithm: op.Ring, Elements: 2}}
	var encoded [wire.Size]byte
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Encode(encoded[:])
		}
	})
	h.Encode(encoded[:])
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var decoded wire.Header
		for b.Loop() {
			if err := wire.Decode(encoded[:], &decoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// player is an actor that passes a ball back until it has made enough hops.
type player struct{}

type ball struct {
	from *actor.PID
	left int
	done chan struct{}
}

func (player) Receive(ctx actor.Context) {
	m, ok := ctx.Message().(*ball)
	if !ok {
		return
	}
	if m.left--; m.left <= 0 {
		close(m.done)
		return
	}
	to := m.from
	m.from = ctx.Self()
	ctx.Send(to, m)
}

// BenchmarkActorHop is one message from an actor to an idle one. On the synchronized dispatcher the
// answer comes while its receiver is busy, as in the data path where an operation calls a worker.
func BenchmarkActorHop(b *testing.B) {
	warm := dispatch.NewWarm(4)
	defer warm.Close()
	for _, c := range []struct {
		name string
		d    actor.Dispatcher
	}{{"default", actor.NewDefaultDispatcher(300)}, {"warm", warm}, {"synchronized", dispatch.Synchronized()}} {
		b.Run("dispatcher="+c.name, func(b *testing.B) {
			sys := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }))
			defer sys.Shutdown()
			props := actor.PropsFromProducer(func() actor.Actor { return player{} }, actor.WithDispatcher(c.d))
			x, y := sys.Root.Spawn(props), sys.Root.Spawn(props)
			m := &ball{from: y, left: b.N, done: make(chan struct{})}
			b.ReportAllocs()
			b.ResetTimer()
			sys.Root.Send(x, m)
			<-m.done
		})
	}
}

// BenchmarkSchedule is what the coordinator does once for each new shape of operation.
func BenchmarkSchedule(b *testing.B) {
	for _, a := range []op.Algorithm{op.Ring, op.RecursiveDoubling, op.Bcube, op.Tree} {
		b.Run(fmt.Sprintf("build/algorithm=%v/n=6", a), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schedule.Build(schedule.Spec{Kind: op.KindAllReduce, Algorithm: a,
					Rank: 1, N: 6, Base: 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("plan/n=6/rails=2/bytes=1048576", func(b *testing.B) {
		p, err := schedule.Build(schedule.Spec{Kind: op.KindAllReduce, Algorithm: op.Ring, Rank: 1, N: 6})
		if err != nil {
			b.Fatal(err)
		}
		cost := schedule.CostOf(p.Spec)
		b.ReportAllocs()
		for b.Loop() {
			l := plan.NewLayout(1<<20, 4, plan.PartsOf(op.KindAllReduce, op.Ring, 6, 1<<20, nil),
				p.Blocks, cost)
			plan.New(l, plan.Rounds(l.Rounds, []uint32{1, 1}), cost)
		}
	})
}
