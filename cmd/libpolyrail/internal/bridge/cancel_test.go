package bridge

import "testing"

// A caller whose wait timed out cancels, and the call may have ended between the two.
func TestToCancelACallThatHasEndedBreaksNothing(t *testing.T) {
	p := newPair(t, "")
	buf := []byte{1}
	w := started(t)(p.Collective(p.comms[0], sum(buf), Call{Started: true}))
	if _, err := p.Collective(p.comms[1], sum([]byte{2}), patient); err != nil {
		t.Fatal(err)
	}
	call, err := lookup[*work](&p.Bridge, w)
	if err != nil {
		t.Fatal(err)
	}
	<-call.done // and nobody has waited for its handle
	if err := p.Cancel(w); err != nil {
		t.Error(err)
	}
	if _, ended, err := p.Wait(w, -1); !ended || err != nil || buf[0] != 3 {
		t.Errorf("ended %v, buffer %v: %v", ended, buf, err)
	}
	p.both(t, func(_ int, comm Handle) (Outcome, error) { return p.Barrier(comm, patient) })
}
