package engine

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/board"
)

// shownGroups are the groups of a node that have a page, and what is left of those that had one.
type shownGroups struct {
	mu   sync.Mutex
	all  map[*boards]struct{}
	left []remains
}

// remains are the pages of a group that has ended here, while a rank may need what its own shows.
type remains struct {
	group *Group
	own   *board.Page
	pages map[op.Rank]board.Reader
	last  uint64
}

// Look takes what other processes show, where nobody polls for it. Somebody has knocked.
func (e *Engine) Look() {
	e.shown.mu.Lock()
	all := slices.Collect(maps.Keys(e.shown.all))
	e.shown.mu.Unlock()
	for _, b := range all {
		if b.renew() {
			b.look()
		}
	}
}

// EndBoards gives back what is left, when the node has closed. The others have it mapped.
func (e *Engine) EndBoards() { e.shown.sweep(true) }

func (s *shownGroups) add(b *boards) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*boards]struct{})
	}
	s.all[b] = struct{}{}
}

// remove forgets a group, whose pages remain until nobody needs them.
func (s *shownGroups) remove(b *boards, r remains) {
	s.mu.Lock()
	delete(s.all, b)
	s.left = append(s.left, r)
	s.mu.Unlock()
	s.sweep(false)
}

// sweep gives back what nobody needs any more; at the end, all.
func (s *shownGroups) sweep(end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(s.left, func(r remains) bool {
		switch {
		case r.taken():
			r.own.Free()
		case end:
			r.own.Keep()
		default:
			return false
		}
		for _, page := range r.pages {
			page.Release()
		}
		return true
	})
}

// taken reports whether each rank that looks at the own page has taken all, has ended too, or is
// lost. One that this node has left is none of these.
func (r *remains) taken() bool {
	for rank, page := range r.pages {
		if page.Sees(r.group.Rank) && page.Done() < r.last && !page.Ended() &&
			!errors.Is(r.group.Peers[rank].Lost(), fault.ErrRankLost) {
			return false
		}
	}
	return true
}
