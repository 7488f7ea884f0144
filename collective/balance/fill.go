package balance

// fill divides rounds over rails so that the slowest ends as early as whole rounds allow, and
// returns that time. A rail takes startup + r·perRound for r > 0 rounds. This is the model of
// docs/decisions/022: all rails end at T = (S + Σ αᵢEᵢ)/ΣEᵢ with sᵢ = Eᵢ(T − αᵢ), and those with sᵢ
// ≤ 0 stay out. Rounding down keeps every rail within T; what is left goes, round by round, where
// it ends first, so no other division in whole rounds is faster. A rail whose perRound is 0 is not
// to be used.
func fill(rounds int, startup, perRound []float64, shares []int) (seconds float64) {
	level := waterline(rounds, startup, perRound)
	left := rounds
	for i, p := range perRound {
		shares[i] = 0
		if p > 0 && startup[i] < level {
			shares[i] = min(int((level-startup[i])/p), left)
			left -= shares[i]
		}
	}
	for ; left > 0; left-- {
		best, end := -1, 0.0
		for i, p := range perRound {
			if p <= 0 {
				continue
			}
			if t := startup[i] + p*float64(shares[i]+1); best < 0 || t < end {
				best, end = i, t
			}
		}
		shares[best]++
	}
	return slowest(startup, perRound, shares)
}

// waterline is T: rails join in the order of their startup as long as that is below it.
func waterline(rounds int, startup, perRound []float64) float64 {
	var rate, offset float64
	in := make([]bool, len(startup))
	for {
		next := -1
		for i, p := range perRound {
			if p > 0 && !in[i] && (next < 0 || startup[i] < startup[next]) {
				next = i
			}
		}
		if next < 0 || rate > 0 && startup[next] >= (float64(rounds)+offset)/rate {
			return (float64(rounds) + offset) / rate
		}
		in[next] = true
		rate += 1 / perRound[next]
		offset += startup[next] / perRound[next]
	}
}

// slowest is the time that shares take.
func slowest(startup, perRound []float64, shares []int) (seconds float64) {
	for i, r := range shares {
		if r > 0 {
			seconds = max(seconds, startup[i]+perRound[i]*float64(r))
		}
	}
	return seconds
}
