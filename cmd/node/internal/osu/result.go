// Package osu turns samples into the figures that OSU's and NVIDIA's (nccl-tests)
// benchmarks print, and prints them: as a table, or as JSON by the line.
//
// It owns the definitions of the figures. What is timed, and how, is package measure's.
package osu

import (
	"math"
	"slices"
	"time"
)

// Result is one size's line. Its JSON keys are held to, since scripts use them.
type Result struct {
	Op         string  `json:"op"`
	Ranks      int     `json:"ranks"`
	Bytes      int     `json:"bytes"` // of the larger one of a rank's input and output
	Iterations int     `json:"iterations"`
	MinMicros  float64 `json:"min_us"`
	AvgMicros  float64 `json:"avg_us"`
	P50Micros  float64 `json:"p50_us"`
	P95Micros  float64 `json:"p95_us"`
	P99Micros  float64 `json:"p99_us"`
	MaxMicros  float64 `json:"max_us"`
	// CPUMicros is user plus system time of a process per operation, mean over the ranks. Of many
	// operations every 16th is asked.
	CPUMicros float64 `json:"cpu_us"`
	// AlgBW is Bytes over the average time, GB/s (10⁹ bytes).
	AlgBW float64 `json:"algbw"`
	// BusBW is AlgBW times the operation's Bus factor, GB/s.
	BusBW float64 `json:"busbw"`
	// Shares is the fraction of all bytes sent by all ranks that each rail carried.
	Shares map[string]float64 `json:"shares"`
	// Errors is the number of wrong elements, over all ranks and checked iterations.
	Errors int64 `json:"errors"`
	// Checked is the number of elements that were compared, over all ranks and iterations.
	Checked int64 `json:"-"`
	// Profile says where rank 0's processor time went, where that was asked for.
	Profile *Profile `json:"profile,omitempty"`
}

// Profile is the processor time of one process while one size was measured: warm-up, barriers and
// checks included.
type Profile struct {
	WallSeconds float64 `json:"wall_s"`
	CPUSeconds  float64 `json:"cpu_s"`
	Samples     int     `json:"samples"` // that the shares are made of
	Parts       []Part  `json:"parts"`
}

// Part is one thing that processor time was spent on.
type Part struct {
	Name    string  `json:"part"`
	Meaning string  `json:"-"`
	Share   float64 `json:"share"` // of CPUSeconds
}

// NewResult computes a result's figures from the times that rank 0 took for its operations, which
// it sorts, and from the sum of all ranks' times: the average is theirs, since with some algorithms
// rank 0 is done sooner than the others. CPUMicros, Shares and Errors are the caller's to fill in.
func NewResult(op string, bus Bus, ranks, bytes int, times []time.Duration, sum time.Duration) Result {
	r := Result{Op: op, Ranks: ranks, Bytes: bytes, Iterations: len(times), Shares: map[string]float64{}}
	if len(times) == 0 {
		return r
	}
	slices.Sort(times)
	avg := float64(sum) / float64(ranks) / float64(len(times))
	r.MinMicros = micros(times[0])
	r.AvgMicros = avg / float64(time.Microsecond)
	r.P50Micros = micros(Percentile(times, 50))
	r.P95Micros = micros(Percentile(times, 95))
	r.P99Micros = micros(Percentile(times, 99))
	r.MaxMicros = micros(times[len(times)-1])
	if avg > 0 {
		r.AlgBW = float64(bytes) / avg // bytes per nanosecond are GB/s
	}
	r.BusBW = r.AlgBW * bus.Of(ranks)
	return r
}

// Percentile is the p-th percentile, 0 < p ≤ 100, of sorted times by nearest rank: a time that
// was measured. It is 0 for no times.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

// Shares turns bytes per rail into fractions of their sum; all are 0 if nothing was sent.
func Shares(bytes map[string]int64) map[string]float64 {
	var sum int64
	for _, b := range bytes {
		sum += b
	}
	shares := make(map[string]float64, len(bytes))
	for rail, b := range bytes {
		shares[rail] = 0
		if sum > 0 {
			shares[rail] = float64(b) / float64(sum)
		}
	}
	return shares
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
