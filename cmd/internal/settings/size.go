package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units from the largest to the smallest. All are binary, as in the tables of OSU's
// and NVIDIA's benchmarks; the SI spellings (kB, MB) are refused because they would mean
// something else.
var units = []struct {
	name   string
	short  string
	factor int
}{
	{"GiB", "G", 1 << 30},
	{"MiB", "M", 1 << 20},
	{"KiB", "K", 1 << 10},
}

// ParseSize reads a number of bytes: "8", "8B", "64KiB" or "64k", "1MiB" or "1M", "2GiB" or "2G".
func ParseSize(s string) (int, error) {
	digits, factor := strings.TrimSuffix(s, "B"), 1
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, factor = rest, u.factor
			break
		}
		if n := len(s); n > 0 && strings.EqualFold(s[n-1:], u.short) {
			digits, factor = s[:n-1], u.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt/factor) {
		return 0, fmt.Errorf("%q is not a size (8, 64KiB, 1MiB, 2GiB; k, M, G mean the same)", s)
	}
	return int(n) * factor, nil
}

// FormatSize writes n so that ParseSize reads it, with the largest unit that divides it.
func FormatSize(n int) string {
	for _, u := range units {
		if n != 0 && n%u.factor == 0 {
			return strconv.Itoa(n/u.factor) + u.name
		}
	}
	return strconv.Itoa(n)
}
