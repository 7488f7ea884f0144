package lobby

import (
	"fmt"
	"testing"
)

func TestWhoComesTakesThePlaceOfTheOldestOfTheHostThatHasTheMost(t *testing.T) {
	const most, perHost = 6, 3
	var l Lobby[string]
	for _, step := range []struct{ in, host, out string }{
		{in: "a1", host: "a"}, {in: "a2", host: "a"}, {in: "a3", host: "a"},
		{in: "a4", host: "a", out: "a1"}, // too many of one
		{in: "b1", host: "b"}, {in: "c1", host: "c"}, {in: "c2", host: "c"},
		{in: "b2", host: "b", out: "a2"},
		{in: "c3", host: "c", out: "c1"}, // as many as any other: its own
		{in: "d1", host: "d", out: "a3"}, // of equals, whose oldest came first
	} {
		out, full := l.Enter(step.in, step.host, most, perHost)
		if out != step.out || full != (step.out != "") {
			t.Errorf("%s takes the place of %q (%v), want %q", step.in, out, full, step.out)
		}
	}
	if l.Leave("a1") || !l.Leave("b1") || l.Leave("b1") {
		t.Error("who has lost its place leaves, or who has one does not, or twice")
	}
	if l.Len() != most-1 {
		t.Errorf("%d are there", l.Len())
	}
}

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:7946": "10.0.0.1", "[fe80::1%eth0]:80": "[fe80::1%eth0]", "mem:node0/eth0#1": "mem:node0/eth0",
		"@": "@", "": "",
	} {
		if got := HostOf(address); got != want {
			t.Errorf("%q is of host %q, want %q", address, got, want)
		}
	}
}

// A flood from a few hosts keeps one that is slow in its place.
func TestAFloodTakesItsOwnPlaces(t *testing.T) {
	var l Lobby[string]
	l.Enter("slow", "honest", 512, 256)
	for i := range 5000 {
		if out, _ := l.Enter(fmt.Sprint(i), fmt.Sprint("host", i%4), 512, 256); out == "slow" {
			t.Fatalf("after %d", i)
		}
	}
}
