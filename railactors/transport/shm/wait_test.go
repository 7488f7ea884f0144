package shm

import (
	"testing"
	"time"
)

// A timer that was too late to be stopped ends nothing: the deadline is another one by then.
func TestADeadlineIsTheLastOneThatWasSet(t *testing.T) {
	var d deadline
	w := newWaiter()
	for range 2000 {
		d.set(time.Now().Add(time.Microsecond), &w)
		d.set(time.Now().Add(time.Hour), &w)
		if err := d.check(); err != nil {
			t.Fatal(err)
		}
	}
	d.set(time.Now().Add(time.Millisecond), &w)
	for d.check() == nil {
		<-w.woken // also once for a timer before it
	}
	d.set(time.Time{}, &w)
	if err := d.check(); err != nil {
		t.Error(err)
	}
}
