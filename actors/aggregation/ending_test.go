package aggregation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/messages/wire"
	"github.com/polyrail/polyrail/railactors"
)

var sumOfFloats = op.Descriptor{Kind: op.KindAllReduce, DType: op.F32, Code: op.CodeSum, Algorithm: op.Ring,
	Elements: 64}

// fragments are some of zeros.
func fragments(d op.Descriptor, count, length int) []request {
	all := make([]request, count)
	for i := range all {
		all[i] = request{desc: d, data: make([]byte, length)}
	}
	return all
}

func TestRanksThatDisagreeAreBothNamed(t *testing.T) {
	other := sumOfFloats
	other.Code, other.Elements = op.CodeMax, 32
	for name, c := range map[string]struct {
		of1  []request
		want string
	}{
		"operations": {fragments(other, 1, 256), `ranks disagree about an operation: ` +
			`rank 0 (node "child0") called allreduce(64 × float32, sum, ring), ` +
			`rank 1 (node "child1") called allreduce(32 × float32, max, ring)`},
		"lengths": {fragments(sumOfFloats, 1, 512), "ring): block 0, 256 bytes and block 0, 512 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 3, nil, func(b *bed) {
				b.form()
				b.children[0].begin(fragments(sumOfFloats, 1, 256))
				synctest.Wait()
				b.children[1].begin(c.of1)
				for _, c2 := range b.children {
					if r := c2.expectRevoked(); !strings.Contains(r.GetReason(), c.want) || !r.GetMismatch() {
						t.Errorf("%s is told %v, want %q", c2.name, r, c.want)
					}
				}
				b.expectNothingLeft()
			})
		})
	}
}

func TestDifferencesThatDescriptorsDontShowAreExplained(t *testing.T) {
	for want, change := range map[string]func(h *wire.Header){
		"seq 1 and seq 9":             func(h *wire.Header) { h.Seq = 9 },
		"table version 3 and 9":       func(h *wire.Header) { h.Table = 9 },
		"the operation's name, its c": func(h *wire.Header) { h.Digest = 9 },
	} {
		virtual(t, 2, nil, func(b *bed) {
			b.form()
			b.children[0].begin(fragments(sumOfFloats, 1, 256))
			synctest.Wait()
			r := fragments(sumOfFloats, 1, 256)[0]
			h := r.header(0)
			change(&h)
			b.children[1].peer.Send(&railactors.Frame{Header: h, Payload: r.data, Rail: 1})
			if r := b.children[1].expectRevoked(); !strings.Contains(r.GetReason(), want) || !r.GetMismatch() {
				t.Errorf("told %v, want %q", r, want)
			}
		})
	}
}

func TestOperationsThatATreeDoesNotServeEndTheGroup(t *testing.T) {
	change := func(f func(d *op.Descriptor)) op.Descriptor { d := sumOfFloats; f(&d); return d }
	for want, d := range map[string]op.Descriptor{
		"serves allreduce, barrier, reduce and broadcast only": change(func(d *op.Descriptor) { d.Kind = op.KindReduceScatter }),
		"doesn't know operator user":                           change(func(d *op.Descriptor) { d.Code = op.CodeUser }),
		"no allreduce folds by chain":                          change(func(d *op.Descriptor) { d.Algorithm = op.Chain }),
		"bitand is not defined on flo":                         change(func(d *op.Descriptor) { d.Code = op.CodeBitAnd }),
	} {
		virtual(t, 2, nil, func(b *bed) {
			b.form()
			b.children[1].begin(fragments(d, 1, 256))
			for _, c := range b.children {
				r := c.expectRevoked()
				if !strings.Contains(r.GetReason(), want) || r.GetMismatch() ||
					!strings.Contains(r.GetReason(), `rank 1 (node "child1")`) {
					t.Errorf("%s is told %v, want %q", c.name, r, want)
				}
			}
			b.expectNothingLeft()
		})
	}
}

func TestALostChildEndsItsGroup(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		for _, rank := range []int{0, 1} {
			b.children[rank].begin(fragments(sumOfFloats, 4, testBytes))
		}
		synctest.Wait()
		b.net.Kill("child2")
		<-time.After(5 * time.Second)
		b.expectNothingLeft()
		for _, rank := range []int{0, 1} {
			r := b.children[rank].expectRevoked()
			if !strings.Contains(r.GetReason(), `rank 2 (node "child2") is gone`) || r.GetMismatch() {
				t.Errorf("told: %v", r)
			}
		}
	})
}

func TestAChildThatIsGoneBeforeTheGroupEndsIt(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		b.net.Kill("child1")
		<-time.After(5 * time.Second)
		m := b.request()
		m.Group = 78
		b.ask("child0", m)
		<-time.After(connectTimeout + time.Second)
		b.expectNothingLeft()
	})
}

// silent has a group with responses on their way to a child that takes none.
func silent(t *testing.T, test func(b *bed)) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		all := operands(rand.New(rand.NewPCG(1, 2)), sumOfFloats, 3, slices.Repeat([]int{testBytes}, 4))
		for _, rank := range []int{0, 1} {
			b.children[rank].begin(all[rank])
		}
		synctest.Wait()
		b.net.Silence("child0", "rail0")
		b.net.Silence("child0", "rail1")
		b.children[2].begin(all[2])
		synctest.Wait()
		if s := b.server.Groups(); len(s) != 1 || s[0].Fragments != 4 {
			t.Fatalf("status %+v, want 4 fragments folded", s)
		}
		test(b)
		b.net.Heal("child0", "rail0")
		b.net.Heal("child0", "rail1")
	})
}

func TestCloseTakesBackWhatIsOnItsWay(t *testing.T) {
	silent(t, func(b *bed) {
		begun := time.Now()
		b.server.Close()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
		b.expectNothingLeft()
		if r := b.children[1].expectRevoked(); !strings.Contains(r.GetReason(), `node "an": closed`) {
			t.Errorf("told: %v", r)
		}
		m := b.request()
		m.Group = 78
		if got := b.ask("child0", m); got != `node "an": closed` {
			t.Errorf("a request after the end: %q", got)
		}
	})
}

func TestAnEndedGroupWaitsForWhoeverHoldsItsMemory(t *testing.T) {
	silent(t, func(b *bed) {
		g := b.server.group(testGroup)
		r := fragments(sumOfFloats, 1, 256)[0]
		h := r.header(4)
		landing, err := b.server.Land(g.peers[1], 1, &h)
		if err != nil || landing.Receiver == nil {
			t.Fatal(landing, err)
		}
		g.end(errTest)
		<-time.After(time.Second)
		select {
		case <-g.done:
			t.Error("freed while an operand is being received")
		default:
		}
		if l, err := b.server.Land(g.peers[1], 1, &h); err != nil || l.Receiver != nil {
			t.Errorf("a late frame: %v, %v; want it dropped", l, err)
		}
		landing.Receiver.Arrived(landing.Tag, nil)
		b.expectNothingLeft()
	})
}

func TestAGroupWhoseActorFailsEnds(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		panics := b.bindPanics()
		b.form()
		if told := panics.Throw("group"); told != 1 {
			t.Fatalf("%d actors were told to panic", told)
		}
		if r := b.children[0].expectRevoked(); !strings.Contains(r.GetReason(), "its actor has stopped") {
			t.Errorf("told: %v", r)
		}
		b.expectNothingLeft()

		m := b.request()
		m.Group = testGroup + 1
		if got := b.ask("child0", m); got != "" {
			t.Fatal(got)
		}
		synctest.Wait()
		if told := panics.Throw("aggregation"); told != 1 {
			t.Fatalf("%d actors were told to panic", told)
		}
		b.expectNothingLeft() // a restart stops the actors below
	})
}

// A child that the news of a group's end did not reach hears of it when it sends something: it would
// wait for the sum for ever.
func TestWhoSendsToAGroupThatIsNotServedIsTold(t *testing.T) {
	virtual(t, 2, nil, func(b *bed) {
		b.form()
		b.server.Destroy("child0", &messages.TreeDestroy{Group: testGroup})
		b.expectNothingLeft()
		c := b.children[1]
		c.expectRevoked()
		c.mu.Lock()
		c.revoked = nil // it was lost
		c.mu.Unlock()
		c.begin(fragments(sumOfFloats, 1, testBytes))
		if r := c.expectRevoked(); r.GetMismatch() {
			t.Errorf("it was told of a mismatch: %v", r)
		}
	})
}

// A reader may have looked a group up just before it ends: what it brings is late, and no violation.
func TestAnOperandOfAGroupThatEndsJustNowIsLate(t *testing.T) {
	virtual(t, 3, nil, func(b *bed) {
		b.form()
		g := b.server.group(testGroup) // as a reader in Land has it
		h := (&request{desc: sumOfFloats, data: make([]byte, 256)}).header(0)
		b.server.Destroy("child0", &messages.TreeDestroy{Group: testGroup})
		<-g.done
		if l, err := g.land(g.peers[0], &h); err != nil || l.Receiver != nil {
			t.Errorf("%+v, %v", l, err)
		}
	})
}
