package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/transport/mem"
	"github.com/polyrail/polyrail/test/bubble"
)

// besideASilentRank runs f on rank 1 of two, in virtual time. Rank 0 says what the test lets it
// say.
func besideASilentRank(t *testing.T,
	f func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer)) {
	bubble.Nodes(t, func(t *testing.T) {
		network := mem.NewNetwork()
		silent, err := network.Transport("b").Open("rail0")
		if err != nil {
			t.Fatal(err)
		}
		n, c, other := half(t, 1, railactors.RailAddress{Name: "rail0", Addr: silent.Addr()}, network)
		f(t, n, c, other)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // nobody answers
		_ = n.fabric.Close(ctx)
		n.shared.Stop(n.pid)
		n.system.Shutdown()
		n.warm.Close()
		n.shared.Engine.Pool.Close()
		silent.Close()
	})
}

// prepared has rank 0 ask for an agreement that holds every operation until it is committed.
func prepared(n *node, other *railactors.Peer) {
	n.Control(other, &messages.Control{Comm: 1,
		Body: &messages.Control_Prepare{Prepare: &messages.Prepare{Effective: 0,
			Table: &messages.Table{Version: 2, Entries: []*messages.TableEntry{{Weights: []uint32{1}}}}}}})
	synctest.Wait()
}

func barrier() *engine.Request { return &engine.Request{Kind: op.KindBarrier} }

func TestAHeldCallCountsInTheOperationTimeout(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
		n.shared.OperationTimeout = 3 * time.Second
		prepared(n, other)
		start := time.Now()
		_, err := c.Start(t.Context(), barrier())
		var timeout *fault.TimeoutError
		if !errors.As(err, &timeout) || time.Since(start) != 3*time.Second ||
			!strings.Contains(err.Error(), "rank 0") {
			t.Errorf("%v after %v, want a timeout after 3s that names rank 0", err, time.Since(start))
		}
		if err := c.Err(); !errors.Is(err, fault.ErrBroken) || !errors.Is(err, fault.ErrTimeout) {
			t.Errorf("%v, want broken by the timeout: the others may have made the call", err)
		}
	})
}

// The time that a call was held is not given to it again.
func TestAnOperationHasTheTimeThatItWasNotHeld(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
		n.shared.OperationTimeout = 3 * time.Second
		prepared(n, other)
		time.AfterFunc(2*time.Second, func() {
			n.Control(other, &messages.Control{Comm: 1,
				Body: &messages.Control_Commit{Commit: &messages.Commit{Version: 2, Effective: 0}}})
		})
		start := time.Now()
		w, err := c.Start(t.Context(), barrier())
		if err != nil || time.Since(start) != 2*time.Second {
			t.Fatalf("%v after %v, want started after 2s", err, time.Since(start))
		}
		if err := w.Wait(t.Context()); !errors.Is(err, fault.ErrTimeout) ||
			time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v, want a timeout 3s after the call", err, time.Since(start))
		}
	})
}

func TestAHeldCallEndsWithTheCommunicator(t *testing.T) {
	for what, end := range map[string]func(n *node, c *communicator.Communicator){
		"broken": func(n *node, c *communicator.Communicator) { c.Group.Fail(fault.ErrRail, 0) },
		"closed": func(n *node, c *communicator.Communicator) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = c.Close(ctx)
		},
		"node closed": func(n *node, c *communicator.Communicator) {
			n.closing = make(chan struct{})
			n.shut()
			c.Group.Fail(n.closedError(), 0)
		},
	} {
		t.Run(what, func(t *testing.T) {
			besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
				prepared(n, other)
				held := make(chan error, 1)
				go func() { _, err := c.Start(t.Context(), barrier()); held <- err }()
				synctest.Wait()
				end(n, c)
				synctest.Wait()
				select {
				case err := <-held:
					if !errors.Is(err, fault.ErrRail) && !errors.Is(err, fault.ErrClosed) {
						t.Errorf("%v, want the cause", err)
					}
				default:
					t.Fatal("the call is held still")
				}
				if seq := c.Seq(); seq != 0 {
					t.Errorf("seq %d, want 0", seq)
				}
			})
		})
	}
}

// childOf makes a communicator of the same members known. The caller ends that.
func childOf(n *node, c *communicator.Communicator, other *railactors.Peer, id uint64) *communicator.Group {
	child := n.shared.NewGroup(id, "train/5", 1, []string{"b", "a"}, nil, c.Table())
	child.Procs = []uint64{1, 1}
	child.Attach(0, other)
	n.fabric.Retain(other)
	n.Register(child)
	return child
}

// An abort may be faster than the call that makes the communicator known here.
func TestAnAbortBeforeTheCommunicatorIsKnownBreaksIt(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
		const id = 99
		n.Control(other, &messages.Control{Comm: id,
			Body: &messages.Control_Abort{Abort: &messages.Abort{Seq: 1, Reason: "dup failed",
				LostRank: -1}}})
		child := childOf(n, c, other, id)
		defer n.Unregister(child)
		if err := child.Err(); !errors.Is(err, fault.ErrAborted) ||
			!strings.Contains(err.Error(), "dup failed") {
			t.Errorf("the child: %v, want aborted", err)
		}
		for i := range uint64(10 * maxDooms) { // what is kept is bounded
			n.Control(other, &messages.Control{Comm: 1000 + i,
				Body: &messages.Control_Abort{Abort: &messages.Abort{}}})
		}
		if kept := len(n.doomed.all); kept > maxDooms {
			t.Errorf("%d aborts are kept, at most %d are to be", kept, maxDooms)
		}
	})
}

// Nodes that are no members hide no member's abort of a communicator that isn't known yet.
func TestAbortsOfStrangersHideNoneOfAMember(t *testing.T) {
	const id = 99
	abort := func(n *node, from *railactors.Peer, comm uint64) {
		n.Control(from, &messages.Control{Comm: comm,
			Body: &messages.Control_Abort{Abort: &messages.Abort{Seq: 1, Reason: from.Node(), LostRank: -1}}})
	}
	for name, aborts := range map[string]func(n *node, member, stranger *railactors.Peer){
		"the stranger's came first": func(n *node, member, stranger *railactors.Peer) {
			abort(n, stranger, id)
			abort(n, member, id)
		},
		"the stranger's are many": func(n *node, member, stranger *railactors.Peer) {
			abort(n, member, id)
			for i := range uint64(2 * maxDooms) {
				abort(n, stranger, 1000+i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
				stranger, err := n.fabric.Introduce(railactors.Remote{Node: "c", Incarnation: 1,
					Rails: []railactors.RailAddress{{Name: "rail0"}}})
				if err != nil {
					t.Fatal(err)
				}
				defer n.fabric.Disconnect(stranger)
				aborts(n, other, stranger)
				child := childOf(n, c, other, id)
				defer n.Unregister(child)
				if err := child.Err(); !errors.Is(err, fault.ErrAborted) || !strings.Contains(err.Error(), `"b"`) {
					t.Errorf("the child: %v, want aborted by node b", err)
				}
			})
		})
	}
}

// Whom an abort blames does not depend on when it comes.
func TestAnAbortBeforeTheCommunicatorIsKnownBlamesTheSameRank(t *testing.T) {
	lost := &messages.Abort{Seq: 1, Rank: 2, Node: "b", Code: uint32(fault.CodeRankLost), LostRank: 0, LostNode: "d"}
	own := &messages.Abort{Seq: 1, Rank: 2, Node: "b", LostRank: -1}
	for name, abort := range map[string]*messages.Abort{"a lost rank": lost, "the sender": own} {
		t.Run(name, func(t *testing.T) {
			besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
				blamed := func(id uint64, early bool) string {
					m := &messages.Control{Comm: id, Body: &messages.Control_Abort{Abort: abort}}
					if early {
						n.Control(other, m)
					}
					child := n.shared.NewGroup(id, "train/5", 1, []string{"d", "a", "b"}, nil, c.Table())
					child.Procs, child.Meshed = []uint64{1, 1, 1}, false
					child.Attach(2, other)
					n.fabric.Retain(other)
					n.Register(child)
					defer n.Unregister(child)
					if !early {
						n.Control(other, m)
					}
					return child.Err().Error()
				}
				if got, want := blamed(99, true), blamed(98, false); got != want {
					t.Errorf("%s; later it is %s", got, want)
				}
			})
		})
	}
}

// A farewell may be faster than the abort that was sent before it, over another rail.
func TestAFarewellSaysWhyTheCommunicatorWasBrokenBefore(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, c *communicator.Communicator, other *railactors.Peer) {
		n.Control(other, &messages.Control{Comm: c.Group.ID, Body: &messages.Control_Leave{Leave: &messages.Leave{
			Cause: &messages.Abort{Seq: 1, Reason: "out of patience", LostRank: -1}}}})
		if err := c.Err(); !errors.Is(err, fault.ErrAborted) || !strings.Contains(err.Error(), "out of patience") {
			t.Errorf("the communicator: %v, want what broke it", err)
		}
	})
}
