package balance

import "time"

// Own is an operation's part of a rail's time, in proportion to bytes (docs/decisions/023). Operations
// in flight together wait for each other: each looks slow by what the rail carries of all, and a small
// one most. own is what the rail brought of the operation in that time, all what it brought of the
// whole communicator.
func Own(elapsed time.Duration, own, all int64) time.Duration {
	if all <= own {
		return elapsed
	}
	return time.Duration(float64(elapsed) * float64(own) / float64(all))
}
