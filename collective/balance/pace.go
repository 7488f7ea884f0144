package balance

// pace spaces out what may be in vain: samples, trials of the baseline, penalties, and algorithms. Each
// pause is twice as long as the one before.
type pace struct {
	left  int // sets until it is time
	pause int // the latest one; 0: there was none
}

// newPace waits for the first pause.
func newPace(first int) pace { return pace{first, first} }

// due reports whether it is time.
func (p *pace) due() bool { return p.left <= 0 }

// tick is once a set.
func (p *pace) tick() { p.left = max(p.left-1, 0) }

// double begins a pause of twice the length.
func (p *pace) double(first int) {
	if p.pause *= 2; p.pause == 0 {
		p.pause = first
	}
	p.pause = min(p.pause, lastPause)
	p.left = p.pause
}

// repeat begins a pause of the same length.
func (p *pace) repeat() { p.left = p.pause }
