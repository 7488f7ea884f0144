package membership

import (
	"testing"

	"github.com/polyrail/polyrail/collective/balance"
)

func TestAReasonNamesTheRailThatCarries(t *testing.T) {
	rail := func(i int) string { return []string{"fast", "slow"}[i] }
	for _, c := range []struct {
		report balance.ClassReport
		want   string
	}{
		{balance.ClassReport{Shares: []float64{1, 0}, BestRail: 0}, "rail fast alone is fastest; by the probe"},
		{balance.ClassReport{Shares: []float64{1, 0}, BestRail: 1, Sets: 2}, "rail fast alone, rail slow may be faster; settling, 2 windows"},
		{balance.ClassReport{Shares: []float64{1, 0}, Treed: true, Sets: 3, Settled: true}, "rail fast alone is fastest; over its tree; settled after 3 windows"},
		{balance.ClassReport{Shares: []float64{.8, .2}, Alone: 5, Now: 4, Sets: 2}, "1.25 × the speed of rail fast alone; settling, 2 windows"},
	} {
		if got := reason(&c.report, rail); got != c.want {
			t.Errorf("%+v: %q, want %q", c.report, got, c.want)
		}
	}
}
