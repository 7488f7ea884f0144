package sim

import (
	"slices"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/peer"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/task"
)

// rank is one member: its caller, its coordinator, and what it keeps for operations to come.
type rank struct {
	id     int
	member *table.Member
	leader *table.Leader // of rank 0

	called     int  // operations so far
	unresolved int  // of them
	asleep     bool // the caller waits for a resolve or a table
	open       []*operation

	timer     *balance.Timer // of a measured run
	landed    []int64        // by rail: bytes of all operations
	clock     clock
	disturbed int // connections that were lost or came back

	pooled int // bytes of copies that frames carry

	early      []frame // data of operations to come, with their own memory
	earlyBytes []int   // of it with headers, by sender
	grants     []grant
	wants      []want
}

// grant came for an operation that hasn't begun here.
type grant struct {
	seq         uint64
	from        op.Rank
	lane, limit int
}

// want came for an operation that hasn't begun here.
type want struct {
	from *rank
	seq  uint64
}

func (s *Sim) newRank(id int, first *table.Table) *rank {
	return &rank{id: id, member: table.NewMember(first), earlyBytes: make([]int, s.setup.ranks)}
}

// find is the open operation, or nil.
func (r *rank) find(seq uint64) *operation {
	for _, o := range r.open {
		if o.seq == seq {
			return o
		}
	}
	return nil
}

// part is the lane's part that a data frame is for. Its operation is open.
func (r *rank) part(f *frame) *part { return r.find(f.seq).parts[f.lane] }

func (r *rank) openSeqs() []uint64 {
	var seqs []uint64
	for _, o := range r.open {
		seqs = append(seqs, o.seq)
	}
	return seqs
}

// wake lets the caller call again after it has thought.
func (s *Sim) wake(r *rank) {
	r.asleep = false
	at := s.now + s.some(s.setup.thinkTime)
	if s.chance(s.setup.skewed) {
		at += s.some(20 * s.setup.thinkTime)
	}
	s.schedule(event{kind: callerWakes, rank: r, at: at})
}

// call begins the rank's next operation, unless it has to wait.
func (s *Sim) call(r *rank) {
	if r.called == s.setup.calls {
		return
	}
	if r.unresolved >= s.setup.inFlight {
		r.asleep = true
		return
	}
	seq, t, ok := r.member.Begin()
	if !ok {
		s.stats.Held++
		s.logf("rank %d waits with seq %d", r.id, r.member.Next())
		r.asleep = true
		return
	}
	r.called++
	r.unresolved++
	s.begin(r, seq, t)
	s.wake(r)
}

// storeEarly keeps eager data of an operation that hasn't begun here.
func (s *Sim) storeEarly(f *frame) {
	r := f.to
	s.stats.Early++
	s.stats.Ahead = max(s.stats.Ahead, int(f.seq-r.member.Next()))
	r.earlyBytes[f.from.id] += f.length + headerBytes
	if r.earlyBytes[f.from.id] > s.setup.creditBytes {
		s.fail("rank %d stores %d early bytes of rank %d, the limit is %d",
			r.id, r.earlyBytes[f.from.id], f.from.id, s.setup.creditBytes)
	}
	stored := *f
	stored.memory = s.floats.get(f.length / 4)
	copy(stored.memory, f.memory)
	r.early = append(r.early, stored)
}

// replay gives an operation that has begun what came before.
func (s *Sim) replay(o *operation) {
	r := o.rank
	r.wants = slices.DeleteFunc(r.wants, func(w want) bool {
		if w.seq == o.seq {
			s.allow(r, w.from, w.seq)
		}
		return w.seq == o.seq
	})
	var mine []frame
	r.early = slices.DeleteFunc(r.early, func(f frame) bool {
		if f.seq == o.seq {
			mine = append(mine, f)
		}
		return f.seq == o.seq
	})
	for i := range mine {
		f := &mine[i]
		r.earlyBytes[f.from.id] -= f.length + headerBytes
		s.returnCredit(f)
		ref, place := s.place(o, f)
		s.tick(o, f.lane, f)
		s.arrived(o.parts[f.lane], ref, place, f.memory)
		s.floats.put(f.memory)
	}
}

// granted: an operation's data may be sent, now or when it begins here.
func (s *Sim) granted(f *frame) {
	g := grant{seq: f.seq, from: op.Rank(f.from.id), lane: f.lane, limit: f.count}
	if o := f.to.find(f.seq); o != nil {
		s.grantTo(o, g)
		return
	}
	if f.seq < f.to.member.Next() {
		return // a later grant overtook this one, and the operation is over
	}
	// Of a lane's grants the largest says all. Spans in which this rank has nothing to send are
	// over without it, so there may be as many as the lane has spans.
	i := slices.IndexFunc(f.to.grants, func(k grant) bool {
		return k.seq == g.seq && k.from == g.from && k.lane == g.lane
	})
	if i >= 0 {
		f.to.grants[i].limit = max(f.to.grants[i].limit, g.limit)
		return
	}
	f.to.grants = append(f.to.grants, g)
	if limit := s.setup.inFlight * s.setup.ranks * s.setup.rails; len(f.to.grants) > limit {
		s.fail("rank %d keeps %d early grants, the limit is %d", f.to.id, len(f.to.grants), limit)
	}
}

func (s *Sim) grantTo(o *operation, g grant) {
	p := o.parts[g.lane]
	if p.retired {
		return // a later grant overtook this one, and the part is over
	}
	s.tick(o, g.lane, nil)
	s.step(p, task.Event{Kind: task.Granted, From: g.from, Limit: g.limit})
}

// replayGrants gives an operation the grants that came before it began.
func (s *Sim) replayGrants(o *operation) {
	o.rank.grants = slices.DeleteFunc(o.rank.grants, func(g grant) bool {
		if g.seq == o.seq {
			s.grantTo(o, g)
		}
		return g.seq == o.seq
	})
}

// leftovers checks that a rank whose operations are over keeps nothing.
func (s *Sim) leftovers(r *rank) {
	if len(r.early)+len(r.grants)+len(r.wants)+r.pooled != 0 {
		s.fail("rank %d keeps %d early frames, %d grants, %d wants, %d bytes of copies at the end",
			r.id, len(r.early), len(r.grants), len(r.wants), r.pooled)
	}
	for _, other := range s.ranks {
		d := s.met(r, other)
		if d == nil {
			continue
		}
		if !d.core.Idle() {
			s.fail("rank %d has %d frames queued and %d generations unsettled for rank %d at the end",
				r.id, d.core.Queued(), d.core.Unsettled(), other.id)
		}
		// One frame that takes all the credit goes only if all of it is back.
		fx := s.effects()
		d.core.Send(peer.Item[*frame]{Bytes: headerBytes, Credit: s.setup.creditBytes}, fx)
		if len(fx.Wants) > 0 {
			s.fail("rank %d does not have all its credit for rank %d back at the end", r.id, other.id)
		}
	}
}
