package cluster

import (
	"errors"
	"fmt"
	"testing"
)

// Sends fail to processes that are forgotten already, as many as ever were. Who does not answer now
// still holds up nobody else.
func TestDoubtsOfTheForgottenLeaveRoomForThoseOfToday(t *testing.T) {
	o := newOutbox(func(Member, []byte) error { return errors.New("no answer") }, func(Member, int, error) {})
	process := func(i int) Member { return Member{Node: fmt.Sprint("n", i), Incarnation: 1} }
	for i := range maxLevels {
		o.forget(process(i))
		o.reached(process(i), false)
	}
	silent := process(maxLevels)
	o.reached(silent, false)
	if o.lane(silent) != o.slow {
		t.Error("it waits among those that answer")
	}
	if len(o.doubt) > maxLevels {
		t.Errorf("%d doubts", len(o.doubt))
	}
}
