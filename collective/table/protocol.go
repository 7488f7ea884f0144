package table

// Prepare proposes a table. From the Leader to every Member, rank 0's included;
// answered with an Answer. Immutable.
type Prepare struct {
	Table     *Table // Version is the proposal's number
	Effective uint64 // the last seq that runs under the table before

	// The last committed table comes along, for a Member that Prepare reaches before Commit.
	Committed          *Table
	CommittedEffective uint64
}

// Version of the proposed table.
func (p *Prepare) Version() uint32 { return p.Table.Version }

// Commit makes a prepared table the one from seq Effective+1 on. From the Leader to
// every Member, once all of them were ready. Nothing answers.
type Commit struct {
	Version   uint32
	Effective uint64
}

// Verdict is what a Member says to a Prepare.
type Verdict uint8

// The verdicts.
const (
	// VerdictStale: a higher version overtook this one. There is nothing to answer.
	VerdictStale Verdict = iota
	// VerdictReady: nothing above Effective starts here until the version is committed or replaced.
	VerdictReady
	// VerdictTooLate: a seq above Effective has started here.
	VerdictTooLate
)

func (v Verdict) String() string {
	return [...]string{"stale", "ready", "too late"}[v]
}

// Answer is a Member's answer to a Prepare.
type Answer struct {
	Verdict  Verdict
	Version  uint32
	Next     uint64 // the Member's next seq
	Released bool   // an earlier hold ended: callers that Begin turned away may ask again
}

// Action is what the Leader wants done: exactly one of Prepare and Commit is set, and
// goes to every rank, rank 0's own Member included.
type Action struct {
	Prepare *Prepare
	Commit  *Commit
	Ticket  uint64 // with Commit: every Propose up to this one is done
}
