package view

import "slices"

// MeshMembers is the largest view all of whose members connect with each other before it is
// committed. In larger ones each connects with its Links: connections to all would cost every node
// memory, descriptors and heartbeats by the number of members (docs/decisions/037).
const MeshMembers = 16

// Links are the ranks of n that a rank connects with before a view is committed, ascending: those
// at distances of powers of two, which are also those that a rank keeps to hear of losses. Among
// them all ranks reach each other, even if fewer ranks die at once than a rank has links. Links
// are mutual.
func Links(n, rank int) (links []int) {
	if n <= MeshMembers {
		for r := range n {
			if r != rank {
				links = append(links, r)
			}
		}
		return links
	}
	for d := 1; d < n; d *= 2 {
		links = append(links, (rank+d)%n, (rank+n-d)%n)
	}
	slices.Sort(links)
	return slices.Compact(links)
}
