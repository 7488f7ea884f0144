package sim

type eventKind uint8

const (
	callerWakes   eventKind = iota // a rank's caller may call its next operation
	tableProposed                  // rank 0 wants another table
	selfDelivers                   // a message from a rank to itself
	packetArrives                  // an end's next packet is there
	packetRead                     // its reader is through
	writerLetsGo                   // an end's writer has written what it took
	streamEnds                     // an end's reader finds that the connection was lost
	quiesces                       // a closed end holds nothing any more
	ackIsDue                       // an acknowledgement was delayed long enough
	kernelDone                     // a Reduce or Copy has run
	connectionCut                  // some connection breaks
	chosenCut                      // an end's connection breaks, as was chosen
	reconnects                     // a rail comes back
)

type event struct {
	at    uint64
	order uint64 // of scheduling: among equal times first in, first out
	kind  eventKind
	rail  int
	job   int // index in part.jobs
	rank  *rank
	frame *frame
	end   *end
	side  *side
	part  *part
}

// queue holds what will happen, a binary heap by time.
type queue struct {
	events []event
	order  uint64
}

func (q *queue) reset() { q.events, q.order = q.events[:0], 0 }

func (q *queue) before(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || (a.at == b.at && a.order < b.order)
}

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	q.events = append(q.events, e)
	for i := len(q.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.before(i, parent) {
			return
		}
		q.events[i], q.events[parent] = q.events[parent], q.events[i]
		i = parent
	}
}

func (q *queue) pop() (event, bool) {
	if len(q.events) == 0 {
		return event{}, false
	}
	first, last := q.events[0], len(q.events)-1
	q.events[0] = q.events[last]
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
}
