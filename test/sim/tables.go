package sim

import "github.com/polyrail/polyrail/collective/table"

// propose: rank 0 wants another table.
func (s *Sim) propose() {
	_, actions, err := s.ranks[0].leader.Propose(s.drawTable())
	s.lead(actions, err)
}

// lead carries out what the leader wants.
func (s *Sim) lead(actions []table.Action, err error) {
	s.failIf(err, "rank 0: leader")
	for _, a := range actions {
		if a.Commit != nil {
			s.stats.Tables++
			s.committed(a.Commit)
		}
		for _, r := range s.ranks {
			f := s.newFrame(tableFrame, s.ranks[0], r)
			f.table = a
			s.send(f)
		}
	}
}

// tableMessage takes what the leader sent.
func (s *Sim) tableMessage(f *frame) {
	r := f.to
	var released bool
	var err error
	if f.table.Commit != nil {
		released, err = r.member.Commit(*f.table.Commit)
	} else {
		var answer table.Answer
		answer, err = r.member.Prepare(f.table.Prepare)
		released = answer.Released
		if answer.Verdict != table.VerdictStale {
			reply := s.newFrame(answerFrame, r, f.from)
			reply.answer = answer
			s.send(reply)
		}
	}
	s.failIf(err, "rank %d: %v", r.id, f)
	if released && r.asleep {
		s.wake(r)
	}
}

// tableAnswer takes what a member answered.
func (s *Sim) tableAnswer(f *frame) {
	leader, rank := f.to.leader, f.from.id
	if f.answer.Verdict == table.VerdictReady {
		s.lead(leader.Ready(rank, f.answer.Version))
		return
	}
	s.stats.TooLate++
	s.lead(leader.TooLate(rank, f.answer.Version, f.answer.Next))
}
