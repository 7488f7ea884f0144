package table

import (
	"strings"
	"testing"
)

func weights(w uint32) *Table { return &Table{Version: 1, Entries: []Entry{entry(0, w)}} }

// begin starts one operation and returns the weight that tells its table.
func begin(t *testing.T, m *Member, wantSeq uint64) uint32 {
	t.Helper()
	seq, tab, ok := m.Begin()
	if !ok || seq != wantSeq {
		t.Fatalf("Begin: seq %d, %v; want seq %d", seq, ok, wantSeq)
	}
	return tab.Entries[0].Weights[0]
}

func prepare(t *testing.T, m *Member, p *Prepare, want Verdict) Answer {
	t.Helper()
	a, err := m.Prepare(p)
	if err != nil || a.Verdict != want || a.Version != p.Version() || a.Next != m.Next() {
		t.Fatalf("Prepare of version %d: %+v, %v; want %v", p.Version(), a, err, want)
	}
	return a
}

func proposalOf(version uint32, weight uint32, effective uint64) *Prepare {
	t := weights(weight)
	t.Version = version
	return &Prepare{Table: t, Effective: effective}
}

func TestMemberHoldsOperationsAboveEffectiveUntilCommit(t *testing.T) {
	m := NewMember(weights(10))
	begin(t, m, 1)
	prepare(t, m, proposalOf(2, 20, 2), VerdictReady)
	if w := begin(t, m, 2); w != 10 {
		t.Errorf("seq 2 runs under table %d, the new one is only for seq 3 on", w)
	}
	for range 2 {
		if seq, _, ok := m.Begin(); ok {
			t.Fatalf("seq %d began under a hold", seq)
		}
	}
	if released, err := m.Commit(Commit{Version: 2, Effective: 2}); !released || err != nil {
		t.Fatalf("Commit: released %v, %v", released, err)
	}
	if w := begin(t, m, 3); w != 20 {
		t.Errorf("seq 3 runs under table %d", w)
	}
}

func TestMemberCommittedAheadOfTimeUsesTheOldTableUntilThen(t *testing.T) {
	m := NewMember(weights(10))
	prepare(t, m, proposalOf(2, 20, 3), VerdictReady)
	if released, err := m.Commit(Commit{Version: 2, Effective: 3}); released || err != nil {
		t.Fatalf("Commit: released %v, %v", released, err)
	}
	if m.Table().Version != 2 {
		t.Errorf("committed table is version %d", m.Table().Version)
	}
	for seq, want := range []uint32{10, 10, 10, 20, 20} {
		if w := begin(t, m, uint64(seq+1)); w != want {
			t.Errorf("seq %d runs under table %d, want %d", seq+1, w, want)
		}
	}
}

func TestMemberThatHasGonePastIsTooLateAndHoldsNothing(t *testing.T) {
	m := NewMember(weights(10))
	for seq := range uint64(5) {
		begin(t, m, seq+1)
	}
	if a := prepare(t, m, proposalOf(2, 20, 4), VerdictTooLate); a.Next != 6 {
		t.Errorf("next is %d", a.Next)
	}
	begin(t, m, 6)
	prepare(t, m, proposalOf(3, 20, 6), VerdictReady) // seq 6 has begun, 7 has not
}

func TestHigherPrepareReplacesAHold(t *testing.T) {
	m := NewMember(weights(10))
	prepare(t, m, proposalOf(2, 20, 0), VerdictReady)
	if _, _, ok := m.Begin(); ok {
		t.Fatal("seq 1 began under a hold")
	}
	if a := prepare(t, m, proposalOf(4, 40, 1), VerdictReady); !a.Released {
		t.Error("the hold of version 2 ended, and nobody was told")
	}
	begin(t, m, 1)
	prepare(t, m, proposalOf(3, 30, 9), VerdictStale)
	if _, _, ok := m.Begin(); ok {
		t.Fatal("an overtaken version changed the hold")
	}
	if a := prepare(t, m, proposalOf(5, 50, 0), VerdictTooLate); !a.Released {
		t.Error("a refused version replaced the hold, and nobody was told")
	}
	if w := begin(t, m, 2); w != 10 {
		t.Errorf("seq 2 runs under table %d, though nothing was committed", w)
	}
}

func TestAHoldThatFollowsAnotherReleasesNobody(t *testing.T) {
	m := NewMember(weights(10))
	for version := uint32(2); version < 4; version++ {
		if a := prepare(t, m, proposalOf(version, 20, 0), VerdictReady); a.Released {
			t.Errorf("version %d released callers that it holds", version)
		}
	}
}

// A proposal that comes again is answered again. Once its table was committed it must not: nobody
// would end its hold.
func TestAPrepareThatComesAgainHoldsNothingAfterItsCommit(t *testing.T) {
	m := NewMember(weights(10))
	prepare(t, m, proposalOf(1, 10, 0), VerdictStale) // what it began with
	for range 2 {
		prepare(t, m, proposalOf(2, 20, 0), VerdictReady)
	}
	if _, err := m.Commit(Commit{Version: 2, Effective: 0}); err != nil {
		t.Fatal(err)
	}
	prepare(t, m, proposalOf(2, 20, 0), VerdictStale)
	if w := begin(t, m, 1); w != 20 {
		t.Errorf("seq 1 runs under table %d", w)
	}
}

func TestACommittedTableOfThePastDoesNotComeBack(t *testing.T) {
	m := NewMember(weights(10))
	for version := uint32(2); version < 4; version++ {
		prepare(t, m, proposalOf(version, 10*version, uint64(version)), VerdictReady)
		if _, err := m.Commit(Commit{Version: version, Effective: uint64(version)}); err != nil {
			t.Fatal(err)
		}
	}
	late := proposalOf(4, 40, 9)
	late.Committed, late.CommittedEffective = proposalOf(2, 20, 2).Table, 2
	prepare(t, m, late, VerdictReady)
	for seq, want := range []uint32{10, 10, 20, 30} {
		if w := begin(t, m, uint64(seq+1)); w != want {
			t.Errorf("seq %d runs under table %d, want %d", seq+1, w, want)
		}
	}
}

func TestPrepareBringsTheCommittedTableThatItOvertook(t *testing.T) {
	m := NewMember(weights(10))
	first := proposalOf(2, 20, 1)
	prepare(t, m, first, VerdictReady)
	second := proposalOf(3, 30, 3)
	second.Committed, second.CommittedEffective = first.Table, first.Effective
	prepare(t, m, second, VerdictReady)
	for seq, want := range []uint32{10, 20, 20} {
		if w := begin(t, m, uint64(seq+1)); w != want {
			t.Errorf("seq %d runs under table %d, want %d", seq+1, w, want)
		}
	}
	if _, err := m.Commit(Commit{Version: 2, Effective: 1}); err != nil {
		t.Errorf("the late Commit: %v", err)
	}
	if released, err := m.Commit(Commit{Version: 3, Effective: 3}); !released || err != nil {
		t.Errorf("Commit of version 3: %v, %v", released, err)
	}
}

func TestTableReplacedBeforeItsFirstSeqIsNeverInForce(t *testing.T) {
	m := NewMember(weights(10))
	for version := uint32(2); version < 50; version++ {
		prepare(t, m, proposalOf(version, 10*version, 2), VerdictReady)
		if _, err := m.Commit(Commit{Version: version, Effective: 2}); err != nil {
			t.Fatal(err)
		}
		if len(m.tables) != 2 {
			t.Fatalf("%d tables are kept", len(m.tables))
		}
	}
	for seq, want := range []uint32{10, 10, 490} {
		if w := begin(t, m, uint64(seq+1)); w != want {
			t.Errorf("seq %d runs under table %d, want %d", seq+1, w, want)
		}
	}
}

func TestMemberRefusesWhatNoLeaderSends(t *testing.T) {
	m := NewMember(weights(10))
	prepare(t, m, proposalOf(2, 20, 4), VerdictReady)
	refusePrepare := func(p *Prepare, word string) {
		t.Helper()
		if _, err := m.Prepare(p); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("Prepare: error is %v, want one with %q", err, word)
		}
	}
	refusePrepare(&Prepare{Table: &Table{Version: 3}}, "version 3: table has no entries")
	with := func(version, committed uint32, effective, committedEffective uint64) *Prepare {
		p := proposalOf(version, 1, effective)
		p.Committed, p.CommittedEffective = weights(1), committedEffective
		p.Committed.Version = committed
		return p
	}
	refusePrepare(with(5, 5, 9, 4), "after version 5 was committed")
	refusePrepare(with(5, 4, 9, 4), "version 4 was committed")
	refusePrepare(with(5, 2, 9, 3), "after seq 3")
	refusePrepare(with(5, 2, 3, 4), "before the committed one")
	broken := with(5, 2, 9, 4)
	broken.Committed.Entries = nil
	refusePrepare(broken, "committed table version 2")
	for _, c := range []Commit{{Version: 3, Effective: 4}, {Version: 2, Effective: 5}} {
		if _, err := m.Commit(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	unasked := NewMember(weights(10))
	if _, err := unasked.Commit(Commit{Version: 2, Effective: 4}); err == nil {
		t.Error("a table that was never prepared was committed")
	}
	if _, err := unasked.Prepare(with(3, 2, 9, 4)); err == nil {
		t.Error("a table that was never prepared came as committed")
	}
	if released, err := m.Commit(Commit{Version: 2, Effective: 4}); err != nil || released {
		t.Errorf("after all that: released %v, %v", released, err)
	}
}

func one(t *testing.T, actions []Action, err error) Action {
	t.Helper()
	if err != nil || len(actions) != 1 {
		t.Fatalf("actions %+v, error %v; want one action", actions, err)
	}
	return actions[0]
}

func none(t *testing.T, actions []Action, err error) {
	t.Helper()
	if err != nil || len(actions) != 0 {
		t.Fatalf("actions %+v, error %v; want none", actions, err)
	}
}

func TestLeaderCommitsWhenAllAreReady(t *testing.T) {
	m := NewMember(weights(10))
	l := NewLeader(2, m)
	ticket, actions, err := l.Propose(weights(20))
	p := one(t, actions, err).Prepare
	if p.Version() != 2 || p.Effective != 2 || p.Committed != nil {
		t.Fatalf("first prepare is %+v", p)
	}
	actions, err = l.Ready(1, 2)
	none(t, actions, err)
	actions, err = l.Ready(1, 2) // said twice
	none(t, actions, err)
	actions, err = l.Ready(0, 2)
	a := one(t, actions, err)
	if a.Commit == nil || *a.Commit != (Commit{Version: 2, Effective: 2}) || a.Ticket != ticket || l.Pending() {
		t.Fatalf("action is %+v", a)
	}
	_, actions, err = l.Propose(weights(30))
	p = one(t, actions, err).Prepare
	if p.Version() != 3 || p.Committed.Version != 2 || p.CommittedEffective != 2 || p.Effective < 2 {
		t.Errorf("second prepare is %+v", p)
	}
}

func TestLeaderGoesFurtherAheadOnTooLateAndComesBackOnSuccess(t *testing.T) {
	m := NewMember(weights(10))
	l := NewLeader(2, m)
	ticket, actions, err := l.Propose(weights(20))
	p := one(t, actions, err).Prepare
	next, lead := uint64(1), uint64(minLead)
	for range 20 {
		next += 100
		lead = min(2*lead, maxLead)
		actions, err = l.TooLate(1, p.Version(), next)
		again := one(t, actions, err).Prepare
		if again.Version() != p.Version()+1 || again.Effective != next-1+lead {
			t.Fatalf("after TooLate{%d}: version %d, effective %d, want %d", next, again.Version(), again.Effective, next-1+lead)
		}
		actions, err = l.Ready(0, p.Version()) // the answer to what was replaced
		none(t, actions, err)
		p = again
	}
	for ; lead > minLead; lead /= 2 {
		actions, err = l.Ready(0, p.Version())
		none(t, actions, err)
		actions, err = l.Ready(1, p.Version())
		if a := one(t, actions, err); a.Ticket != ticket {
			t.Fatalf("ticket %d, want %d", a.Ticket, ticket)
		}
		if l.lead != lead/2 {
			t.Fatalf("lead is %d after a success at %d", l.lead, lead)
		}
		ticket, actions, err = l.Propose(weights(30))
		p = one(t, actions, err).Prepare
	}
}

func TestLeaderKeepsOneProposalWaitingTheLatest(t *testing.T) {
	l := NewLeader(1, NewMember(weights(10)))
	_, actions, err := l.Propose(weights(20))
	one(t, actions, err)
	_, actions, err = l.Propose(weights(30))
	none(t, actions, err)
	ticket, actions, err := l.Propose(weights(40))
	none(t, actions, err)
	actions, err = l.Ready(0, 2)
	if err != nil || len(actions) != 2 || actions[0].Commit == nil || actions[1].Prepare == nil {
		t.Fatalf("actions %+v, %v; want the commit, then the next prepare", actions, err)
	}
	if w := actions[1].Prepare.Table.Entries[0].Weights[0]; w != 40 {
		t.Errorf("the next proposal is %d", w)
	}
	actions, err = l.Ready(0, 3)
	if a := one(t, actions, err); a.Ticket != ticket {
		t.Errorf("ticket %d, want %d", a.Ticket, ticket)
	}
}

func TestLeaderDropsAProposalThatIsTooLateForALaterOne(t *testing.T) {
	l := NewLeader(2, NewMember(weights(10)))
	_, actions, err := l.Propose(weights(20))
	one(t, actions, err)
	_, actions, err = l.Propose(weights(30))
	none(t, actions, err)
	actions, err = l.TooLate(1, 2, 50)
	if p := one(t, actions, err).Prepare; p.Version() != 3 || p.Table.Entries[0].Weights[0] != 30 {
		t.Errorf("prepare is %+v", p)
	}
}

func TestLeaderRefusesWhatNoRankSends(t *testing.T) {
	l := NewLeader(2, NewMember(weights(10)))
	if _, _, err := l.Propose(&Table{}); err == nil {
		t.Error("an empty table was proposed")
	}
	for _, c := range []struct {
		rank    int
		version uint32
	}{{2, 1}, {-1, 1}, {1, 2}} {
		if _, err := l.Ready(c.rank, c.version); err == nil {
			t.Errorf("ready of rank %d for version %d was accepted", c.rank, c.version)
		}
		if _, err := l.TooLate(c.rank, c.version, 1); err == nil {
			t.Errorf("too late of rank %d for version %d was accepted", c.rank, c.version)
		}
	}
}

// What is added to a seq near the end of its range is none: every proposal would be too late.
// So it is refused also where no proposal is open.
func TestLeaderRefusesSeqsThatNoRankReaches(t *testing.T) {
	for _, next := range []uint64{1<<64 - 1, 1<<64 - 2, 1<<62 + 1} {
		idle := NewLeader(2, NewMember(weights(10)))
		if _, err := idle.Departed(1, next-1); err == nil {
			t.Errorf("seq %d was a rank's last", next-1)
		}
		for what, answer := range map[string]func(*Leader) ([]Action, error){
			"too late": func(l *Leader) ([]Action, error) { return l.TooLate(1, 2, next) },
			"departed": func(l *Leader) ([]Action, error) { return l.Departed(1, next-1) },
		} {
			m := NewMember(weights(10))
			for range uint64(5000) {
				m.Begin()
			}
			l := NewLeader(2, m)
			_, actions, err := l.Propose(weights(20))
			prepare(t, m, one(t, actions, err).Prepare, VerdictReady)
			if actions, err = answer(l); err == nil {
				t.Errorf("%s, next seq %d: no error, then %+v", what, next, actions[0].Prepare)
			}
		}
	}
}

func TestTablesThatAreNotInForceYetAreBounded(t *testing.T) {
	m := NewMember(weights(10))
	for version := uint32(2); ; version++ {
		_, err := m.Prepare(proposalOf(version, 20, uint64(version)))
		if err != nil {
			if version < 1000 || !strings.Contains(err.Error(), "not in force yet") {
				t.Errorf("version %d: %v", version, err)
			}
			return
		}
		if _, err := m.Commit(Commit{Version: version, Effective: uint64(version)}); err != nil {
			t.Fatal(err)
		}
		if version > 10_000 {
			t.Fatalf("%d tables are kept", len(m.tables))
		}
	}
}
