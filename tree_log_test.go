package polyrail_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
)

// One rank's rail is down for a minute, and rank 0 asks for a tree each second. The log says so once,
// and at once when there is a tree again.
func TestALogOfTreesThatFailStaysShort(t *testing.T) {
	shape := fault.Options{Rate: 25e6, Delay: 50 * time.Microsecond}
	adapt, rail := shapedRails(shape, func(*Config) {})
	inGrove(t, 3, 1, 2, adapt, func(b *bed, comms []*Communicator) {
		said := func(since int, what string) (lines int) {
			for line := range strings.Lines(b.log.String()[since:]) {
				if !strings.Contains(line, "DEBUG") && strings.Contains(line, what) {
					lines++
				}
			}
			return lines
		}
		untilTree(b, comms[0], true)
		sums(b, comms, 100_000, 1, true)
		rail(1, 0).Cut()
		untilTree(b, comms[0], false)
		failing := len(b.log.String())
		<-time.After(65 * time.Second)
		for _, what := range []string{"tree given up", "aggregation group ended"} {
			if n := said(failing, what); n < 1 || n > 2 {
				t.Errorf("%d lines of %q in a minute", n, what)
			}
		}
		if n := said(failing, "tree") + said(failing, "aggregation group"); n > 4 {
			t.Errorf("%d lines of trees in a minute:\n%s", n, b.log)
		}
		healed := len(b.log.String())
		rail(1, 0).Heal()
		untilTree(b, comms[0], true)
		for seed := range uint64(4) { // the first ones are still of the table before
			sums(b, comms, 100_000, seed, true)
		}
		for _, what := range []string{"tree made", "aggregation group serves"} {
			if n := said(healed, what); n != 1 {
				t.Errorf("%d lines of %q when it works again\n%s", n, what, b.log)
			}
		}
	})
}
