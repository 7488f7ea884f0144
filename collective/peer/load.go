package peer

// Load is what a rail to the peer has to do, and how fast it was.
type Load struct {
	Queued   int     // bytes of data that wait for it
	InFlight int     // bytes of data handed out and not acknowledged
	Rate     float64 // bytes per second while it was busy; 0: unknown
}

// Load tells of a rail. It is for those who look on: nothing is decided by it.
func (c *Core[F]) Load(rail int) Load {
	l := &c.links[rail]
	load := Load{Queued: l.data.bytes, InFlight: l.traffic.bytes}
	if l.pace.known() {
		load.Rate = l.pace.rate()
	}
	return load
}
