package sharp

import (
	"slices"
	"strconv"
	"strings"
)

// Site is a rank's node, and where it stands: the path of the switches above it from the top down
// ("row1/rack3"); empty where nothing is known.
type Site struct {
	Node string
	Path string
}

// Offer is a node that offers to aggregate, and how many groups it serves already. Its site is the
// switch that it stands beside: it serves best what is below that.
type Offer struct {
	Site
	Groups int
}

// Layout is the tree of a group: its nodes, the root first and each after its parent.
type Layout []Junction

// Junction is a node of a tree.
type Junction struct {
	Node     string
	Parent   int // index of the node above; -1: it is the root
	Children []Member
	Ranks    int // at and below its children
}

// Member is a child: a rank, or a node of the layout.
type Member struct {
	Rank int // -1: a node
	Node int // index, if it is no rank
}

// Deep reports whether some operands are folded before they reach the root.
func (l Layout) Deep() bool { return len(l) > 1 }

// String draws the tree in a line: NODE(children), ranks by their numbers.
func (l Layout) String() string {
	if len(l) == 0 {
		return "none"
	}
	return l.draw(0)
}

func (l Layout) draw(i int) string {
	var parts []string
	for _, m := range l[i].Children {
		if m.Rank >= 0 {
			parts = append(parts, strconv.Itoa(m.Rank))
		} else {
			parts = append(parts, l.draw(m.Node))
		}
	}
	return l[i].Node + "(" + strings.Join(parts, " ") + ")"
}

// Above is the index of the node that a rank is a child of; -1 if it is none's.
func (l Layout) Above(rank int) int {
	return slices.IndexFunc(l, func(j Junction) bool {
		return slices.ContainsFunc(j.Children, func(m Member) bool { return m.Rank == rank })
	})
}

// Arrange lays a tree over all ranks by the nodes that are offered, the preferred ones first. The
// switches above the ranks are the physical tree; a switch at which somebody aggregates folds what
// is below it, unless that is one child alone (SHArP, §III-B: the tree of a group is trimmed where
// its width is one). A node has at most radix children, if radix is not 0 and there are nodes
// enough at its switch. It is empty when nobody is offered who is no rank's node itself.
func Arrange(ranks []Site, offers []Offer, radix int) Layout {
	a := arrangement{ranks: ranks, radix: radix}
	for _, o := range offers {
		if !slices.ContainsFunc(ranks, func(r Site) bool { return r.Node == o.Node }) {
			a.free = append(a.free, o)
		}
	}
	if len(a.free) == 0 {
		return nil
	}
	alone := a.free[a.highest()].Node
	top := a.gather("", numbers(len(ranks)))
	switch {
	case len(top) == 1:
	case len(a.free) > 0: // nobody stands above them all, but a node is left over
		a.join(a.take(a.highest()).Node, top)
	default:
		a.nodes = nil
		var all []Member
		for r := range ranks {
			all = append(all, Member{Rank: r})
		}
		a.join(alone, all)
	}
	return a.layout()
}

// highest is the first free node of those that stand the highest.
func (a *arrangement) highest() (best int) {
	for i, o := range a.free {
		if height(o.Path) < height(a.free[best].Path) {
			best = i
		}
	}
	return best
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func height(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, "/")
}

// arrangement is a layout in the making: nodes are there after those below them.
type arrangement struct {
	ranks []Site
	radix int
	free  []Offer
	nodes []Junction
}

// gather folds what is below a switch, and returns what is left to be folded above it.
func (a *arrangement) gather(path string, ranks []int) (left []Member) {
	below := make(map[string][]int) // by the next switch
	var names []string
	for _, r := range ranks {
		next := strings.TrimPrefix(strings.TrimPrefix(a.ranks[r].Path, path), "/")
		if next == "" {
			left = append(left, Member{Rank: r})
			continue
		}
		next, _, _ = strings.Cut(next, "/")
		if below[next] == nil {
			names = append(names, next)
		}
		below[next] = append(below[next], r)
	}
	for _, name := range names {
		left = append(left, a.gather(strings.TrimPrefix(path+"/"+name, "/"), below[name])...)
	}
	return a.fold(path, left)
}

// fold has the nodes at a switch fold its members, as far as there are any.
func (a *arrangement) fold(path string, members []Member) []Member {
	here := 0
	for _, o := range a.free {
		if o.Path == path {
			here++
		}
	}
	if len(members) < 2 || here == 0 {
		return members
	}
	if a.radix > 1 && len(members) > a.radix {
		// One node is kept to fold what the others have folded. A part of one is passed on.
		if parts := min((len(members)+a.radix-1)/a.radix, here-1); parts > 1 {
			var above []Member
			for i := range parts {
				part := members[i*len(members)/parts : (i+1)*len(members)/parts]
				if len(part) > 1 {
					part = []Member{a.join(a.at(path), part)}
				}
				above = append(above, part...)
			}
			return a.fold(path, above)
		}
	}
	return []Member{a.join(a.at(path), members)}
}

// at takes the first free node at a switch.
func (a *arrangement) at(path string) string {
	return a.take(slices.IndexFunc(a.free, func(o Offer) bool { return o.Path == path })).Node
}

func (a *arrangement) take(i int) Offer {
	o := a.free[i]
	a.free = slices.Delete(a.free, i, i+1)
	return o
}

// join puts a node above its members.
func (a *arrangement) join(node string, members []Member) Member {
	j := Junction{Node: node, Parent: -1, Children: members}
	for _, m := range members {
		if m.Rank >= 0 {
			j.Ranks++
		} else {
			j.Ranks += a.nodes[m.Node].Ranks
			a.nodes[m.Node].Parent = len(a.nodes)
		}
	}
	a.nodes = append(a.nodes, j)
	return Member{Rank: -1, Node: len(a.nodes) - 1}
}

// layout turns the order around.
func (a *arrangement) layout() Layout {
	last := len(a.nodes) - 1
	slices.Reverse(a.nodes)
	for i := range a.nodes {
		j := &a.nodes[i]
		if j.Parent >= 0 {
			j.Parent = last - j.Parent
		}
		j.Children = slices.Clone(j.Children)
		for c := range j.Children {
			if m := &j.Children[c]; m.Rank < 0 {
				m.Node = last - m.Node
			}
		}
	}
	return a.nodes
}
