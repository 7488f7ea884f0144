package p2p

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyrail/polyrail/collective/op"
)

// ledger is the rule of matching, without any index: lists that are searched from the front.
type ledger struct {
	next    map[op.Rank]uint64
	early   map[op.Rank]map[uint64]Tag
	stray   []stray
	posted  []posted
	matched map[int]stray // by receive
}

type stray struct {
	from   op.Rank
	number uint64
	tag    Tag
}

type posted struct {
	id   int
	from op.Rank
	tag  Tag
}

func (p posted) takes(m stray) bool {
	return (p.from == AnySource || p.from == m.from) &&
		(p.tag == AnyTag && m.tag <= MaxTag || p.tag == m.tag) &&
		(p.from != AnySource || m.tag <= MaxTag)
}

func (l *ledger) arrive(m stray) {
	if l.early[m.from] == nil {
		l.early[m.from] = make(map[uint64]Tag)
		l.next[m.from] = 1
	}
	l.early[m.from][m.number] = m.tag
	for {
		n := l.next[m.from]
		tag, ok := l.early[m.from][n]
		if !ok {
			return
		}
		l.next[m.from]++
		l.enter(stray{m.from, n, tag})
	}
}

func (l *ledger) enter(m stray) {
	if p, ok := takeFirst(&l.posted, func(p posted) bool { return p.takes(m) }); ok {
		l.matched[p.id] = m
		return
	}
	l.stray = append(l.stray, m)
}

func (l *ledger) post(p posted) {
	if m, ok := takeFirst(&l.stray, p.takes); ok {
		l.matched[p.id] = m
		return
	}
	l.posted = append(l.posted, p)
}

func (l *ledger) cancel(id int) { takeFirst(&l.posted, func(p posted) bool { return p.id == id }) }

// takeFirst removes the first of a list that fits.
func takeFirst[T any](list *[]T, fits func(T) bool) (taken T, ok bool) {
	i := slices.IndexFunc(*list, fits)
	if i < 0 {
		return taken, false
	}
	taken = (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return taken, true
}

// Envelopes of some ranks come in any order, between receives that are posted and cancelled.
func TestMatchingFollowsTheLedger(t *testing.T) {
	tags := []Tag{0, 1, 2, Reserved, Reserved + 1}
	rapid.Check(t, func(t *rapid.T) {
		const ranks = 4
		core := New[int](Config{Size: ranks, Rails: 1, EagerBytes: 1024,
			CreditBytes: 1 << 20, WindowBytes: 1, Granted: 1000, Open: 1000})
		rule := &ledger{next: map[op.Rank]uint64{}, early: map[op.Rank]map[uint64]Tag{},
			matched: map[int]stray{}}
		var sent [ranks][]stray // not yet arrived
		var recvs []*Recv[int]
		var last [ranks]uint64
		for range rapid.SampledFrom([]int{5, 50, 200}).Draw(t, "steps") {
			var fx Effects[int]
			switch rapid.SampledFrom([]int{0, 1, 2, 2, 3, 3, 4}).Draw(t, "what") {
			case 0, 1:
				from := rapid.IntRange(0, ranks-1).Draw(t, "from")
				last[from]++
				sent[from] = append(sent[from],
					stray{op.Rank(from), last[from], rapid.SampledFrom(tags).Draw(t, "tag")})
			case 2:
				from := rapid.IntRange(0, ranks-1).Draw(t, "source")
				if len(sent[from]) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(sent[from])-1).Draw(t, "which")
				m := sent[from][i]
				sent[from] = append(sent[from][:i], sent[from][i+1:]...)
				rule.arrive(m)
				e := Envelope{m.tag, op.Uint8, 8}
				if rapid.Bool().Draw(t, "eager") {
					p, err := core.Eager(m.from, m.number, e, 8, &fx)
					if err != nil {
						t.Fatal(err)
					}
					if p.Recv != nil {
						core.Arrived(p.Recv, p.Ref, &fx)
					} else {
						p.Message.Data.Bytes = make([]byte, 8)
						core.ArrivedHeld(p.Message, &fx)
					}
				} else if err := core.Asked(m.from, m.number, e, &fx); err != nil {
					t.Fatal(err)
				}
			case 3:
				from := op.Rank(rapid.IntRange(-1, ranks-1).Draw(t, "of"))
				tag := rapid.SampledFrom(append(tags, AnyTag)).Draw(t, "with")
				r := &Recv[int]{Work: len(recvs), From: from, Room: Envelope{tag, op.Uint8, 8}}
				recvs = append(recvs, r)
				rule.post(posted{r.Work, from, tag})
				if err := core.Recv(r, &fx); err != nil {
					t.Fatal(err)
				}
			case 4:
				if len(recvs) == 0 {
					continue
				}
				r := rapid.SampledFrom(recvs).Draw(t, "cancelled")
				if _, matched := rule.matched[r.Work]; matched {
					continue
				}
				rule.cancel(r.Work)
				core.CancelRecv(r, errCancel, &fx)
			}
			for i := 0; i < len(fx.Copies); i++ {
				core.Copied(fx.Copies[i].Message, &fx)
			}
			for _, r := range recvs {
				want, ok := rule.matched[r.Work]
				switch m := r.message; {
				case ok != (m != nil):
					t.Fatalf("receive %d of rank %d, tag %d: matched %v, want %v", r.Work, r.From,
						r.Room.Tag, m != nil, ok)
				case ok && (stray{m.From, m.Number, m.Envelope.Tag}) != want:
					t.Fatalf("receive %d got %d of rank %d, want %+v", r.Work, m.Number, m.From, want)
				}
			}
		}
	})
}
