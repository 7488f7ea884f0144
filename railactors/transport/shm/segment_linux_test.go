package shm

import "testing"

// Where memory is short the system turns down what is asked for, here nothing at all.
func TestMemoryThatIsNotGivenIsAnError(t *testing.T) {
	if s, err := newSegment(0); err == nil {
		s.release()
		t.Error("a segment of no bytes was made")
	}
}
