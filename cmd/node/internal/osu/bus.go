package osu

// Bus is the factor between the algorithmic bandwidth of an operation and its bus bandwidth: what the
// busiest rank must send or receive at least, in sizes of the operation. nccl-tests define it so,
// for figures that can be compared with the links' rates, whatever the number of ranks.
type Bus struct {
	Formula string // of n ranks
	Of      func(n int) float64
}

// The factors.
var (
	// BusTwice is an allreduce's: all but its own part of the buffer is sent to be reduced, and again as result.
	BusTwice = Bus{"2(n-1)/n", func(n int) float64 { return 2 * float64(n-1) / float64(n) }}
	// BusOthers is of operations in which a rank keeps its own part of the buffer, and moves the others'.
	BusOthers = Bus{"(n-1)/n", func(n int) float64 { return float64(n-1) / float64(n) }}
	// BusWhole is of operations in which a rank moves the whole buffer.
	BusWhole = Bus{"1", func(n int) float64 {
		if n == 1 {
			return 0 // alone it moves nothing
		}
		return 1
	}}
)
