// Package affinity names processor cores and binds threads to them: how a user gives a rail cores
// of its own (Nezha §V-C3, where rails that compete for cores are found to slow each other down).
//
// It owns the notation of core lists and the calls to the system. Which goroutines are
// bound is decided by railactors.
package affinity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxCores bounds the number of a core.
const MaxCores = 1024

// Parse reads a list of cores: numbers and ranges, separated by commas or plus signs ("0-3,8" or
// "0-3+8", for use where a comma separates something else). The result ascends.
func Parse(s string) ([]int, error) {
	var named [MaxCores]bool // however often: a list of repetitions takes no more memory
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == '+' }) {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= MaxCores {
			return nil, fmt.Errorf("%q in cores %q is not a number or an ascending range within 0-%d", part, s, MaxCores-1)
		}
		for c := first; c <= last; c++ {
			named[c] = true
		}
	}
	var cores []int
	for c, is := range named {
		if is {
			cores = append(cores, c)
		}
	}
	if len(cores) == 0 {
		return nil, fmt.Errorf("cores %q: none is named", s)
	}
	return cores, nil
}

// Format writes cores in the form that Parse reads: "0-3+8".
func Format(cores []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(cores)))
	var parts []string
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+n {
			n++
		}
		part := strconv.Itoa(sorted[0])
		if n > 1 {
			part += "-" + strconv.Itoa(sorted[n-1])
		}
		parts = append(parts, part)
		sorted = sorted[n:]
	}
	return strings.Join(parts, "+")
}

// Check reports the cores that this process may not use, by number, and which it may. No
// cores mean no wish.
func Check(cores []int) error {
	if len(cores) == 0 {
		return nil
	}
	allowed, err := Allowed()
	if err != nil {
		return err
	}
	refused := slices.DeleteFunc(slices.Clone(cores), func(c int) bool { return slices.Contains(allowed, c) })
	if len(refused) > 0 {
		return fmt.Errorf("core %s: this process may use %s", Format(refused), Format(allowed))
	}
	return nil
}
