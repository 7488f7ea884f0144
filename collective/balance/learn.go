package balance

import "math"

// learn takes a set of windows into the rails' models, and reports whether a rail has changed.
//
// What disturbs all rails alike, as a busy processor does, says nothing of how they compare: of a
// set in which several rails worked, the deviation that all of them share moves the level of
// everything that is known, and only the rest is a rail's own. The rail that deviates least from
// what was measured of the same share before shows the common part.
func (b *Balancer) learn(c Class, set []Window) (rescaled bool) {
	k := &b.classes[c]
	alone, lean := len(set) == 1, k.own.lean()
	residuals, footings := make([]float64, len(set)), make([]footing, len(set))
	common, all := math.Inf(1), exact
	for i := range set {
		p := pointOf(&set[i], alone)
		want, f := b.rails[set[i].Rail].of(k.form).expect(c, alone, p.bytes, p.seconds, lean)
		footings[i], all = f, min(all, f)
		if f != unmeasured {
			residuals[i] = math.Log(p.seconds / want)
		}
		if f == exact && math.Abs(residuals[i]) < math.Abs(common) {
			common = residuals[i]
		}
	}
	if alone || math.IsInf(common, 1) {
		common = 0
	}
	own := &k.own
	if alone {
		own = &k.common
	}
	v := expected
	worst := 0.0 // of a rail's own, and no fault of the line's
	for i := range set {
		p, rail := pointOf(&set[i], alone), set[i].Rail
		p.seconds *= math.Exp(-common)
		rest, limit := residuals[i]-common, own.limit(clearly)
		if footings[i] == near {
			limit = own.limit(greatlyFar)
		}
		want := p.seconds / math.Exp(rest)
		s := k.suspects[rail]
		confirmed := s.off*rest > 0
		if confirmed {
			limit /= 2 // the last one has moved what is expected
		}
		m, taken := b.rails[rail].of(k.form), true
		k.suspects[rail] = suspect{}
		switch {
		case footings[i] == unmeasured || math.Abs(rest) <= limit:
		case own.quiet() || confirmed:
			v = changed
			off, factor := s.change(rest)
			m.rescale(p, p.seconds/math.Exp(off), math.Exp(factor), lean)
		default: // noise, unless the next set says the same
			v, k.suspects[rail].off = max(v, suspected), rest
			p.seconds *= math.Exp(math.Copysign(limit, rest) - rest)
			// Of a share that has no measurement yet it would be all that the next one is held against.
			taken = footings[i] == exact
		}
		if taken {
			m.observe(p, own.memory())
		}
		if u := &k.suspects[rail]; taken && u.off != 0 {
			after, _ := m.expect(c, alone, p.bytes, want, lean)
			u.moved = math.Log(after / want)
		}
		if footings[i] == near {
			rest = math.Copysign(max(math.Abs(rest)-math.Log(greatly), 0), rest)
		}
		if math.Abs(rest) > math.Abs(worst) {
			worst = rest
		}
	}
	if all != unmeasured {
		own.add(worst, v)
	}
	if common != 0 {
		k.common.add(common, expected)
		for _, m := range b.rails {
			m.of(k.form).scale(math.Exp(common / settlingSets))
		}
	}
	return v == changed
}

// change is how far a time is off what was expected before the suspect, and what both have shown.
// The time is off what is expected by rest.
func (s suspect) change(rest float64) (off, shown float64) {
	if s.off*rest <= 0 {
		return rest, rest
	}
	off = rest + s.moved
	if math.Abs(s.off) < math.Abs(off) {
		return off, s.off
	}
	return off, off
}

// learnBeyond takes how much longer a set's operations took than the rail that ended last on the
// mean, where several rails worked: it isn't always the same one that ends last. Of a single rail
// nothing comes on top.
func (k *class) learnBeyond(set []Window) {
	if len(set) > 1 {
		k.beyond += (bounded(beyond(set)) - k.beyond) / settlingSets
	}
}

func pointOf(w *Window, alone bool) point {
	return point{class: w.Class, alone: alone, bytes: float64(max(w.Bytes, 1)), seconds: max(w.Elapsed, 1).Seconds(), weight: 1}
}
