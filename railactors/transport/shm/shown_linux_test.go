package shm

import (
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
)

// connect connects two devices.
func connect(t *testing.T, a, b *device) (near, far *conn) {
	t.Helper()
	n, err := a.Dial(t.Context(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(); f.Close() })
	return n.(*conn), f.(*conn)
}

func TestWhatADeviceShowsOutlivesItsConnection(t *testing.T) {
	a, b := openOne(t), openOne(t)
	near, far := connect(t, a, b)
	mine, view := a.Shown().Bytes(), far.View()
	mine[5] = 7
	if view.Bytes()[5] != 7 || len(view.Bytes()) != transport.ShownBytes {
		t.Error("it isn't seen at the other end")
	}
	near.Close()
	far.Close()
	if far.View() != nil {
		t.Error("a closed connection has a view")
	}
	mine[5] = 8
	if view.Bytes()[5] != 8 {
		t.Error("it isn't seen any more")
	}
	a.Close()
	if view.Bytes()[5] != 8 {
		t.Error("its last state isn't seen")
	}
	view.Release()
}

func TestAKnockIsHeardAndSoIsTheEndOfAConnection(t *testing.T) {
	a, b := openOne(t), openOne(t)
	near, far := connect(t, a, b)
	if !near.Knock() {
		t.Fatal("it can't knock")
	}
	<-b.Knocks()
	near.Close()
	<-b.Knocks()
	if near.Knock() || far.Knock() {
		t.Error("somebody who is gone is said to hear a knock")
	}
}

func TestADeviceWithLittleMemoryShowsNothing(t *testing.T) {
	a := openOne(t)
	b, err := openDevice(Options{RingBytes: MinRing, MaxBytes: 8*transport.ShownBytes - 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	near, far := connect(t, a, b)
	if b.Shown() != nil || near.View() != nil {
		t.Error("it shows memory")
	}
	view := far.View()
	if view == nil {
		t.Fatal("it sees nothing either")
	}
	view.Release()
}
