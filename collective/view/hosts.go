package view

import (
	"slices"
	"strings"
)

// SharesMemory reports whether members at the two places share memory. What follows the last colon
// of their addresses says with whom: with those who have the same there.
func (h Host) SharesMemory(o Host) bool {
	return h.Name != "" && h.Name == o.Name && h.Memory != "" && o.Memory != "" &&
		after(h.Memory) == after(o.Memory)
}

func after(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// AllShareMemory reports whether members at all these places share memory, each with each. It is the
// same for all of them.
func AllShareMemory(hosts []Host) bool {
	return len(hosts) > 1 && !slices.ContainsFunc(hosts, func(h Host) bool { return !h.SharesMemory(hosts[0]) })
}

// Together are the ranks on each host, ascending, in the order of their lowest ones.
func Together(hosts []Host) (groups [][]int) {
	index := make(map[string]int)
	for rank, h := range hosts {
		i, known := index[h.Name]
		if h.Name == "" || !known {
			i = len(groups)
			groups = append(groups, nil)
			index[h.Name] = i
		}
		groups[i] = append(groups[i], rank)
	}
	return groups
}

// Numbers are the hosts by rank: ranks with the same number are on the same one.
func Numbers(hosts []Host) []int {
	numbers := make([]int, len(hosts))
	for i, ranks := range Together(hosts) {
		for _, rank := range ranks {
			numbers[rank] = i
		}
	}
	return numbers
}
