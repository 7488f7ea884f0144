//go:build linux

package netlab

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	pairs      = flag.Int("pairs", 0, "how many pairs of blocks are run, over all rails and over the best alone; 0: none")
	pairsHosts = flag.String("pairs-hosts", "2,4,6", "numbers of hosts")
	pairsRates = flag.String("pairs-rates", "250+62.5,250+25", "beds: the rates of their rails in Mbit/s, the best first")
	pairsSizes = flag.String("pairs-sizes", "8,1024,65536,262144,1048576,16777216", "bytes")
)

const (
	settling = 30 // operations of a size that don't count
	mebi     = 1 << 20
)

// TestAllRailsAreNoSlowerThanTheBest: nothing is configured but the rails.
func TestAllRailsAreNoSlowerThanTheBest(t *testing.T) {
	if *pairs == 0 {
		t.Skip("SKIPPED: -pairs N measures N pairs of each size, number of hosts and bed")
	}
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "rates\thosts\tbytes\tp50\tp95\tp50 / bound\tp95 / bound\tp50 / best alone\t95 % of it\tshares, %")
	for bed := range strings.SplitSeq(*pairsRates, ",") {
		var rates []Rate
		for r := range strings.SplitSeq(bed, "+") {
			mbit, err := strconv.ParseFloat(r, 64)
			if err != nil {
				t.Fatal(err)
			}
			rates = append(rates, Rate(mbit*float64(Mbit)))
		}
		for _, hosts := range whole(t, *pairsHosts) {
			t.Run(fmt.Sprintf("rates=%s/hosts=%d", bed, hosts), func(t *testing.T) {
				for _, l := range pairsOn(t, rates, hosts) {
					fmt.Fprintf(table, "%s\t%d\t%s\n", bed, hosts, judge(t, rates, hosts, l))
				}
			})
		}
	}
}

func whole(t *testing.T, list string) (numbers []int) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// pairsOn runs all sizes on a bed and returns what rank 0 tells.
func pairsOn(t *testing.T, rates []Rate, hosts int) (lines []pairsLine) {
	t.Helper()
	b := Up(t, Config{Hosts: hosts, Rails: rates, Management: true})
	var all sync.WaitGroup
	var mu sync.Mutex
	for host := 1; host <= hosts; host++ {
		c := pairsConfig{Name: nameOf(host), Here: b.Addr(host, 0), First: b.Addr(1, 0),
			Ranks: hosts, Sizes: whole(t, *pairsSizes), Settle: settling, Pairs: *pairs}
		for r := range rates {
			c.Rails = append(c.Rails, NIC(r+1))
		}
		var errs strings.Builder
		cmd, in, out := spawn(t, b, host, pairsEnv, c, &errs)
		all.Go(func() {
			defer in.Close()
			told := json.NewDecoder(bufio.NewReader(out))
			for {
				var l pairsLine
				if told.Decode(&l) != nil {
					break
				}
				mu.Lock()
				lines = append(lines, l)
				mu.Unlock()
			}
			ended(t, host, cmd, &errs)
		})
	}
	all.Wait()
	return lines
}

func ended(t *testing.T, host int, cmd *exec.Cmd, errs fmt.Stringer) {
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", nameOf(host), err, errs)
	}
}

// judge holds one size against its bounds, and returns its line of the table.
func judge(t *testing.T, rates []Rate, hosts int, l pairsLine) string {
	t.Helper()
	var sum Rate
	for _, r := range rates {
		sum += r
	}
	bound := 2 * float64(hosts-1) / float64(hosts) * float64(l.Bytes) * 8 / float64(sum)
	slices.Sort(l.Times)
	p50, p95 := l.Times[len(l.Times)/2], l.Times[len(l.Times)*95/100]
	ratios := make([]float64, len(l.All))
	for i := range l.All {
		ratios[i] = float64(l.All[i]) / float64(l.Alone[i])
	}
	t.Logf("%d bytes: over all rails against the best one, pair by pair: %.3f", l.Bytes, ratios)
	slices.Sort(ratios)
	middle, low, high := interval(ratios)
	slower, above := 1.10, math.Inf(1)
	switch {
	case l.Bytes >= 16*mebi && len(rates) > 2:
		slower, above = 1.03, 1.05
	case l.Bytes >= 16*mebi:
		slower, above = 1.03, 1.04
	case l.Bytes >= mebi:
		slower, above = 1.03, 1.10
	}
	if high > slower {
		t.Errorf("%d bytes: over all rails %.3f × the best one's time (95 %%: %.3f … %.3f), may be %.2f", l.Bytes, middle, low, high, slower)
	}
	if over := p50.Seconds() / bound; over > above {
		t.Errorf("%d bytes: %v is %.3f × the bound, may be %.2f", l.Bytes, p50, over, above)
	}
	total := int64(0)
	for _, sent := range l.Sent {
		total += sent
	}
	var shares []string
	for r := range rates {
		shares = append(shares, fmt.Sprintf("%.1f", 100*float64(l.Sent[NIC(r+1)])/float64(max(total, 1))))
	}
	return fmt.Sprintf("%d\t%v\t%v\t%.3f\t%.3f\t%.3f\t%.3f … %.3f\t%s", l.Bytes, p50.Round(time.Microsecond), p95.Round(time.Microsecond),
		p50.Seconds()/bound, p95.Seconds()/bound, middle, low, high, strings.Join(shares, "/"))
}

// interval is the median of sorted values and its interval of 95 % by order statistics: so many of
// n values lie below the median as of n tosses of a coin show heads.
func interval(sorted []float64) (median, low, high float64) {
	n := float64(len(sorted))
	half := 1.96 * math.Sqrt(n) / 2
	i := max(int(math.Floor(n/2-half)), 1)
	j := min(int(math.Ceil(n/2+half))+1, len(sorted))
	return sorted[len(sorted)/2], sorted[i-1], sorted[j-1]
}
