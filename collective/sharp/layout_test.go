package sharp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sites are ranks r0, r1 … at the paths.
func sites(paths ...string) (all []Site) {
	for r, p := range paths {
		all = append(all, Site{fmt.Sprint("r", r), p})
	}
	return all
}

// offers are nodes of the form NAME@PATH.
func offers(texts ...string) (all []Offer) {
	for _, s := range texts {
		name, path, _ := strings.Cut(s, "@")
		all = append(all, Offer{Site: Site{name, path}})
	}
	return all
}

func TestTreesFollowTheSwitches(t *testing.T) {
	racks := sites("a/1", "a/1", "a/2", "b/3", "b/3")
	for _, c := range []struct {
		name   string
		ranks  []Site
		offers []Offer
		radix  int
		want   string
	}{
		{"nobody", sites("", ""), nil, 0, "none"},
		{"a rank's own node", sites("", ""), offers("r1"), 0, "none"},
		{"nothing is known", sites("", "", ""), offers("x", "y"), 0, "x(0 1 2)"},
		{"radix 2", sites("", "", "", ""), offers("x", "y", "z"), 2, "z(x(0 1) y(2 3))"},
		{"radix 2, an odd rank", sites("", "", ""), offers("x", "y", "z"), 2, "y(0 x(1 2))"},
		{"radix 2, three levels", sites("", "", "", "", "", "", "", ""),
			offers("a", "b", "c", "d", "e", "f", "g"), 2, "g(e(a(0 1) b(2 3)) f(c(4 5) d(6 7)))"},
		{"radix 2, too few nodes", sites("", "", "", ""), offers("x", "y"), 2, "x(0 1 2 3)"},
		{"one at each switch", racks, offers("top", "A@a", "B@b", "1@a/1", "2@a/2", "3@b/3"), 0,
			"top(A(1(0 1) 2) 3(3 4))"}, // 2 and B would have one child
		{"two racks and a spine", racks, offers("1@a/1", "top", "3@b/3"), 0, "top(1(0 1) 2 3(3 4))"},
		{"two racks alone", racks, offers("1@a/1", "3@b/3"), 0, "1(0 1 2 3 4)"},
		{"two racks, and another node", racks, offers("1@a/1", "3@b/3", "x@c"), 0, "x(1(0 1) 2 3(3 4))"},
		{"one rack alone", sites("a/1", "a/1"), offers("top", "A@a", "1@a/1"), 0, "1(0 1)"},
		{"ranks at several heights", sites("", "a", "a/1", "a/1"), offers("top", "A@a", "1@a/1"), 0,
			"top(0 A(1 1(2 3)))"},
	} {
		l := Arrange(c.ranks, c.offers, c.radix)
		if got := l.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEveryRankIsBelowTheRootOnce(t *testing.T) {
	path := rapid.StringMatching(`([ab](/[ab]){0,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		ranks := sites(rapid.SliceOfN(path, 2, 20).Draw(t, "ranks")...)
		var all []Offer
		for i, p := range rapid.SliceOfN(path, 1, 12).Draw(t, "offers") {
			all = append(all, Offer{Site: Site{fmt.Sprint("n", i), p}})
		}
		l := Arrange(ranks, all, rapid.IntRange(0, 5).Draw(t, "radix"))
		seen, used := make([]bool, len(ranks)), map[string]bool{}
		for i, j := range l {
			if used[j.Node] {
				t.Fatalf("%s: %s has two roles", l.String(), j.Node)
			}
			used[j.Node] = true
			if (i == 0) != (j.Parent < 0) || j.Parent >= i {
				t.Fatalf("%s: the parent of node %d is %d", l.String(), i, j.Parent)
			}
			if len(j.Children) < 2 {
				t.Fatalf("%s: a width of one", l.String())
			}
			below := 0
			for _, m := range j.Children {
				if m.Rank < 0 {
					if l[m.Node].Parent != i {
						t.Fatalf("%s: parent of node %d", l.String(), m.Node)
					}
					below += l[m.Node].Ranks
					continue
				}
				if seen[m.Rank] || l.Above(m.Rank) != i {
					t.Fatalf("%s: rank %d is below node %d", l.String(), m.Rank, l.Above(m.Rank))
				}
				seen[m.Rank] = true
				below++
			}
			if j.Ranks != below {
				t.Fatalf("%s: node %d has %d ranks below", l.String(), i, j.Ranks)
			}
		}
		if slices.Contains(seen, false) {
			t.Fatalf("%s lacks ranks", l.String())
		}
	})
}
