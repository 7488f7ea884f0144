package shm

import (
	"bytes"
	"testing"
)

// put publishes p, for which there has to be room.
func put(t *testing.T, out *sink, p []byte) {
	t.Helper()
	if n, err := out.room(); err != nil || n < len(p) {
		t.Fatalf("room for %d bytes, %v", n, err)
	}
	out.put(p)
	out.publish()
}

// takes takes so many bytes as want has, which they have to be.
func takes(t *testing.T, in *source, want []byte) {
	t.Helper()
	if n, err := in.look(); err != nil || n < len(want) {
		t.Fatalf("%d bytes of input, %v", n, err)
	}
	got := bytes.Clone(in.next(len(want)))
	in.giveBack(len(got))
	if !bytes.Equal(got, want) {
		t.Fatalf("took %q, want %q", got, want)
	}
}

// A large ring costs no more cache than what is on its way.
func TestAnEmptyRingIsFilledFromItsBeginning(t *testing.T) {
	out, in := ends(MinRing)
	for range 3 {
		put(t, out, []byte("first"))
		takes(t, in, []byte("fi"))
		put(t, out, []byte("second")) // the ring is not empty: it goes on
		if want := []byte("firstsecond"); !bytes.HasPrefix(out.data, want) {
			t.Fatalf("the ring begins with %q, want %q", out.data[:len(want)], want)
		}
		takes(t, in, []byte("rstsecond"))
	}
}
