package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// mix is the child's part.
func (m *member) mix(ctx context.Context, words []string) error {
	if len(words) != 2 {
		return errors.New("mix takes a way and a moment")
	}
	after, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	x := &mixer{node: m.node, comm: m.comm, way: way(words[0]), victim: after > 0, after: after}
	x.die = func() { select {} } // the parent kills it
	m.say(report{Kind: ended, End: x.run(ctx)})
	if x.victim && x.way == leaves {
		return errEnough
	}
	return nil
}

// leaveMoment is before which one leaves: operations of all kinds have passed by then.
const leaveMoment = 200 * time.Millisecond

// mixRound has all members mix and one of them leave, and brings it back.
func (c *cluster) mixRound(round int, w way) (worst time.Duration) {
	c.t.Helper()
	for i := range c.all {
		c.tell(i, regroup)
	}
	for i := range c.all {
		c.await(i, regrouped)
	}
	victim, after := rand.IntN(len(c.all)), 1+time.Duration(rand.Int64N(int64(leaveMoment)))
	for i := range c.all {
		told := time.Duration(0)
		if i == victim && w != dies {
			told = after
		}
		c.tell(i, fmt.Sprintf("%s %s %v", mix, w, told))
	}
	endings := make([]ending, len(c.all))
	if w == dies {
		<-time.After(after)
		endings[victim].Acted = time.Now()
		c.end(victim, time.Time{})
		endings[victim].At = endings[victim].Acted
	}
	for i := range c.all {
		if i != victim || w != dies {
			endings[i] = c.await(i, ended).End
		}
	}
	if w == leaves {
		c.leave(victim)
	}
	worst = checkEndings(c.t, fmt.Sprintf("round %d, %s of %s after %v", round, w, names[victim],
		after), w, endings, victim, names[victim])
	if w == leaves || w == dies {
		c.start(victim)
	}
	return worst
}

func TestNoProcessWaitsForWhoLeaves(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out whole programs")
	}
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			c := newCluster(t)
			var worst time.Duration
			for round := range *leavings {
				worst = max(worst, c.mixRound(round, w))
				if t.Failed() {
					return
				}
			}
			t.Logf("%d rounds: the last one waited %v at most", *leavings, milli(worst))
		})
	}
}
