package communicator

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages"
)

// An Abort names a rank: whom its sender has lost, or whose words it passes on. A name that can't
// be true leaves the sender as who has said it.
func TestAnAbortNamesWhoIsMeant(t *testing.T) {
	g := quietNode(1).NewGroup(1, "train", 0, []string{"a", "b", "c"}, nil, nil)
	const from = 1
	lost := uint32(fault.CodeRankLost)
	type said = messages.Abort
	for name, c := range map[string]struct {
		abort *said
		lost  bool
		rank  op.Rank
	}{
		"its own":              {&said{Rank: 1, LostRank: -1}, false, 1},
		"another rank's":       {&said{Rank: 2, LostRank: -1}, false, 2},
		"this rank's":          {&said{Rank: 0, LostRank: -1}, false, from},
		"of no rank":           {&said{Rank: 3, LostRank: -1}, false, from},
		"of no rank at all":    {&said{Rank: math.MaxUint32, LostRank: -1}, false, from},
		"lost":                 {&said{Rank: 1, Code: lost, LostRank: 2, LostNode: "c"}, true, 2},
		"lost, another number": {&said{Rank: 1, Code: lost, LostRank: 1, LostNode: "c"}, false, from},
		"lost, this rank":      {&said{Rank: 1, Code: lost, LostRank: 0, LostNode: "a"}, false, from},
		"lost, no rank":        {&said{Rank: 1, Code: lost, LostRank: 3, LostNode: "d"}, false, from},
		"lost, none at all":    {&said{Rank: 1, Code: lost, LostRank: -1}, false, from},
		"lost, unknown code":   {&said{Rank: 1, Code: 1 << 30, LostRank: 2, LostNode: "c"}, false, from},
	} {
		err := g.AbortCause(from, c.abort)
		var rankLost *fault.RankLostError
		var abort *fault.AbortError
		switch {
		case c.lost:
			if !errors.As(err, &rankLost) || rankLost.Rank != c.rank ||
				rankLost.Node != g.Nodes[c.rank] {
				t.Errorf("%s: %v, want rank %d lost", name, err, c.rank)
			}
		case !errors.As(err, &abort) || abort.Rank != c.rank || abort.Node != g.Nodes[c.rank]:
			t.Errorf("%s: %v, want an abort of rank %d", name, err, c.rank)
		}
	}
}

func TestAReasonOfAnotherRankIsClipped(t *testing.T) {
	g := quietNode(1).NewGroup(1, "train", 0, []string{"a", "b"}, nil, nil)
	long := &messages.Abort{LostRank: -1, Rank: 1, Reason: strings.Repeat("x", 10*maxText)}
	if text := g.AbortCause(1, long).Error(); len(text) > 2*maxText || !strings.Contains(text, "xxx") {
		t.Errorf("a reason of %d bytes became an error of %d", len(long.Reason), len(text))
	}
}

func TestTextForTheWire(t *testing.T) {
	for _, s := range []string{"", "plain", "\xff", strings.Repeat("é", maxText),
		"x" + strings.Repeat("世", maxText), strings.Repeat("\x80", 2*maxText),
		strings.Repeat("x", maxText-1) + "\xe4\xb8"} {
		w := WireText(s)
		if !utf8.ValidString(w) || len(w) > maxText ||
			len(w) < min(len(s), maxText)-3 && !strings.Contains(w, "?") {
			t.Errorf("%d bytes (%.10q) became %d (%.10q)", len(s), s, len(w), w)
		}
	}
}
