package polyrail_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// collect takes the events that are there when everything has come to rest.
func collect(events <-chan Event) (all []Event) {
	synctest.Wait()
	for {
		select {
		case e, open := <-events:
			if !open {
				return all
			}
			all = append(all, e)
		default:
			return all
		}
	}
}

func count(events []Event, kind EventKind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func TestEventsTellALifeStory(t *testing.T) {
	inBed(t, 3, 2, nil, func(b *bed) {
		ctx, cancel := context.WithCancel(b.t.Context())
		events := b.Nodes[0].Events(ctx)
		comms := b.form("train")
		story := collect(events)
		if count(story, RailUp) != 4 || count(story, CommunicatorFormed) != 1 || len(story) != 5 {
			t.Errorf("forming: %+v", story)
		}

		b.Rails.Cut("node1", "eth0")
		<-time.After(50 * time.Millisecond)
		b.Rails.Heal("node1", "eth0")
		<-time.After(5 * time.Second)
		story = collect(events)
		if len(story) != 2 || story[0].Kind != RailDown || story[0].Node != "node1" || story[0].Rail != "rail0" || story[0].Err == nil ||
			story[1].Kind != RailUp || story[1].Rail != "rail0" {
			t.Errorf("a cut: %+v", story)
		}

		table := comms[0].Table()
		if err := comms[0].SetTable(b.t.Context(), table); err != nil {
			t.Fatal(err)
		}
		story = collect(events)
		if len(story) != 1 || story[0].Kind != TableChanged || story[0].Communicator != "train" || story[0].Version <= table.Version {
			t.Errorf("a table: %+v", story)
		}

		b.Kill(2)
		rest, _, errs := b.shrink(comms, 0, 1)
		b.goOn(rest, errs, 0, 1)
		story = collect(events)
		if count(story, RankLost) != 1 || count(story, CommunicatorBroken) != 1 || count(story, CommunicatorFormed) != 1 {
			t.Errorf("a loss: %+v", story)
		}
		for _, e := range story {
			if e.Kind == RankLost && (e.Rank != 2 || e.Node != "node2" || !errors.Is(e.Err, ErrRankLost)) {
				t.Errorf("%+v", e)
			}
		}

		cancel()
		synctest.Wait()
		if _, open := <-events; open {
			t.Error("the channel is open after the context ended")
		}
	})
}

// An alert on communicators that broke is to mean something.
func TestACommunicatorThatIsClosedHasNotBroken(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		events := b.Nodes[0].Events(b.t.Context())
		comms := b.form("train")
		b.sum(comms, 10)
		b.each(func(i int) error { return comms[i].Close(b.t.Context()) })
		if story := collect(events); count(story, CommunicatorFormed) != 1 || count(story, CommunicatorBroken) != 0 {
			t.Errorf("%+v", story)
		}
	})
}

// inFailOver runs f on three nodes whose two rails each take 0.1 s for what failOver sends.
func inFailOver(t *testing.T, f func(b *bed)) {
	adapt, _ := shapedRails(fault.Options{Rate: 100e6, Delay: time.Millisecond}, func(*Config) {})
	inBed(t, 3, 2, adapt, f)
}

// failOver has a large allreduce lose a rail of node 1 in its middle, and repairs the rail.
func (b *bed) failOver(comms []*Communicator) {
	b.each(func(i int) error {
		w, err := StartAllReduce(b.t.Context(), comms[i], make([]float32, 4<<20), Sum)
		if err != nil {
			return err
		}
		if i == 1 {
			<-time.After(30 * time.Millisecond)
			b.Rails.Silence("node1", "eth0")
		}
		return w.Wait(b.t.Context())
	})
	b.Rails.Heal("node1", "eth0")
}

func TestEventsTellWhatADeadRailCarriedAndWhereItWent(t *testing.T) {
	inFailOver(t, func(b *bed) {
		var events []<-chan Event
		for _, n := range b.Nodes {
			events = append(events, n.Events(b.t.Context()))
		}
		comms := b.form("train")
		b.failOver(comms)
		var carried, resent, remaining int64
		for i := range events {
			for _, e := range collect(events[i]) {
				remaining += e.Remaining
				switch e.Kind {
				case RailDown:
					carried += e.Unacknowledged
				case RailMoved:
					resent += e.Resent
					if e.Rail != "rail0" || e.Resent > e.Unacknowledged || e.To["rail1"] != e.Resent+e.Waiting || len(e.To) != 1 {
						t.Errorf("%+v", e)
					}
				}
			}
		}
		if resent == 0 || resent > carried || remaining < 8<<20 {
			t.Errorf("%d bytes were on their way over it, %d sent again; %d remained to be done", carried, resent, remaining)
		}
	})
}

func TestASlowSubscriberMissesEventsAndLearnsHowMany(t *testing.T) {
	inBed(t, 2, 1, nil, func(b *bed) {
		events := b.Nodes[0].Events(b.t.Context())
		comms := b.form("train")
		collect(events)
		for range 300 {
			if err := comms[0].SetTable(b.t.Context(), comms[0].Table()); err != nil {
				t.Fatal(err)
			}
		}
		if got := collect(events); len(got) != 256 || got[255].Missed != 0 {
			t.Errorf("%d events", len(got))
		}
		if err := comms[0].SetTable(b.t.Context(), comms[0].Table()); err != nil {
			t.Fatal(err)
		}
		if got := collect(events); len(got) != 1 || got[0].Missed != 44 {
			t.Errorf("%+v, want 44 missed", got)
		}
	})
}

// watchedContext counts those who wait for its end.
type watchedContext struct {
	context.Context
	done  chan struct{}
	watch atomic.Int32
}

func (w *watchedContext) Done() <-chan struct{} { return w.done }

func (w *watchedContext) AfterFunc(func()) (stop func() bool) {
	w.watch.Add(1)
	return func() bool { return w.watch.Add(-1) >= 0 }
}

func TestANodeThatClosedIsNotKeptByTheContextOfItsEvents(t *testing.T) {
	inBed(t, 1, 1, nil, func(b *bed) {
		ctx := &watchedContext{Context: context.Background(), done: make(chan struct{})}
		events := b.Nodes[0].Events(ctx)
		if ctx.watch.Load() != 1 {
			t.Fatal("the context is not watched")
		}
		b.close()
		for range events { // till it is closed
		}
		if watch := ctx.watch.Load(); watch != 0 {
			t.Errorf("%d watches of the context after the node's end", watch)
		}
	})
}
