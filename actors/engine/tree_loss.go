package engine

import "slices"

// This file is about how a rank finds that a tree's aggregation node doesn't answer, and does
// without it (docs/decisions/035).

// owed reports whether responses are outstanding, or the word that everybody has those that are here.
func (t *Tree) owed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owes()
}

// owes is owed under mu.
func (t *Tree) owes() bool {
	return (t.leaf.Sent() > t.leaf.Received() || t.heldTo > t.leaf.Settled()) && !t.fenced && !t.closed
}

// Fence ends this rank's part in the group: nothing is sent, and no response is taken. Once nothing
// holds memory of it quiet is called, with the number of fragments that are settled.
func (t *Tree) Fence(quiet func(settled uint64)) {
	t.mu.Lock()
	t.fenced, t.quiet = true, quiet
	t.leaf.Fence()
	parts := slices.Clone(t.parts)
	t.mu.Unlock()
	for _, p := range parts {
		t.engine.Revoke(p)
	}
	t.advance(nil)
}

// Departed takes another rank's word, by its leave, that operations up to seq last are settled: it has
// waited for that. So their responses are here. It returns how many fragments are settled.
func (t *Tree) Departed(last uint64) (settled uint64) {
	t.mu.Lock()
	for _, p := range t.parts {
		if p.operation.Seq <= last && p.end() <= t.leaf.Received() && !t.repaired {
			_ = t.leaf.SettledTo(p.end()) // it is not beyond what is here
		}
	}
	settled = t.leaf.Settled()
	t.mu.Unlock()
	t.advance(nil)
	return settled
}

// takeQuiet is who waits for the fenced tree to hold no memory, if it does not. Under mu.
func (t *Tree) takeQuiet() (quiet func(uint64), settled uint64) {
	holds := slices.ContainsFunc(t.parts, func(p *treePart) bool { return p.busy > 0 })
	if !t.fenced || holds || t.placing {
		return nil, 0
	}
	quiet, t.quiet = t.quiet, nil
	return quiet, t.leaf.Settled()
}

// Repair begins to do without the group what is not settled, in each operation that has not ended
// and in those to come: fragments from a number on (docs/decisions/035). It returns how many
// operations had to. An error is a claim of rank 0 that can't be true.
func (t *Tree) Repair(from uint64) (operations int, err error) {
	t.mu.Lock()
	if t.repaired {
		t.mu.Unlock()
		return 0, nil
	}
	if err := t.leaf.Repaired(from); err != nil {
		t.mu.Unlock()
		return 0, err
	}
	t.repaired, t.from = true, from
	t.place()
	var parts []*treePart
	for _, p := range t.parts {
		if p.launched {
			parts = append(parts, p)
		}
	}
	t.mu.Unlock()
	for _, p := range parts {
		if p.repair() {
			operations++
		}
	}
	t.advance(nil)
	return operations, nil
}
