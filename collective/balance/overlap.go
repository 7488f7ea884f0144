package balance

import "time"

// Own is an operation's part of the time that it had a rail, of whose bytes others in flight together
// with it were some (docs/decisions/023). While they wait for each other each looks slow by what the rail
// carries of all, and a small one most. own is what the rail brought of the operation meanwhile, all of
// its communicator's.
func Own(elapsed time.Duration, own, all int64) time.Duration {
	if all <= own {
		return elapsed
	}
	return time.Duration(float64(elapsed) * float64(own) / float64(all))
}
