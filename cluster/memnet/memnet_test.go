package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"

	"github.com/polyrail/polyrail/test/bubble"
)

func listen(t *testing.T, n *Network, bind string) memberlist.NodeAwareTransport {
	t.Helper()
	h, err := n.Listen(bind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Shutdown() })
	return h
}

const (
	addrA = "10.0.0.1:1"
	addrB = "10.0.0.2:1"
)

func TestPacketsArriveOrGetLostAndNeverBlock(t *testing.T) {
	n := New()
	a, b := listen(t, n, addrA), listen(t, n, addrB)
	for range packetQueue + 10 {
		if _, err := a.WriteTo([]byte("x"), addrB); err != nil {
			t.Fatal(err)
		}
	}
	if p := <-b.PacketCh(); string(p.Buf) != "x" || p.From.String() != addrA {
		t.Errorf("got %q from %v", p.Buf, p.From)
	}
	if len(b.PacketCh()) != packetQueue-1 {
		t.Errorf("%d packets are left", len(b.PacketCh()))
	}
	if _, err := a.WriteTo([]byte("x"), "10.0.0.9:1"); err != nil {
		t.Errorf("to nobody: %v", err)
	}
}

func TestStreamsCarryBytesAndAddresses(t *testing.T) {
	n := New()
	a, b := listen(t, n, addrA), listen(t, n, addrB)
	near, err := a.DialTimeout(addrB, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	far := <-b.StreamCh()
	if near.RemoteAddr().String() != addrB || far.RemoteAddr().String() != addrA {
		t.Errorf("%v, %v", near.RemoteAddr(), far.RemoteAddr())
	}
	go func() { near.Write([]byte("hello")); near.Close() }()
	if got, err := io.ReadAll(far); string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	far.Close()
}

func TestNobodyAndTakenAddresses(t *testing.T) {
	n := New()
	a := listen(t, n, addrA)
	if _, err := n.Listen(addrA); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	if _, err := a.DialTimeout(addrB, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	a.Shutdown()
	if _, err := a.DialTimeout(addrB, time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	listen(t, n, addrA)
	b, c := listen(t, n, "10.0.0.2:0"), listen(t, n, "10.0.0.2:0")
	_, p, _ := b.FinalAdvertiseAddr("", 0)
	_, q, _ := c.FinalAdvertiseAddr("", 0)
	if p == 0 || p == q {
		t.Errorf("ports %d and %d", p, q)
	}
}

func TestAPartitionCutsPacketsStreamsAndDials(t *testing.T) {
	defer goleak.VerifyNone(t)
	bubble.Test(t, func(t *testing.T) {
		n := New()
		a, b := listen(t, n, addrA), listen(t, n, addrB)
		near, err := a.DialTimeout(addrB, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		n.Partition([]string{addrA})
		if _, err := near.Read(make([]byte, 1)); err == nil {
			t.Error("the stream goes on")
		}
		began := time.Now()
		if _, err := a.DialTimeout(addrB, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		a.WriteTo([]byte("x"), addrB)
		n.Heal()
		if len(b.PacketCh()) != 0 {
			t.Error("a packet crossed")
		}
		if _, err := a.DialTimeout(addrB, time.Second); err != nil {
			t.Error(err)
		}
		near.Close()
	})
}

// As many nodes as a cluster has may answer one at the same moment.
func TestManyDialOneHostAtOnce(t *testing.T) {
	n := New()
	a := listen(t, n, addrA)
	listen(t, n, addrB)
	for i := range 1000 {
		c, err := a.DialTimeout(addrB, time.Second)
		if err != nil {
			t.Fatalf("dial %d: %v", i+1, err)
		}
		defer c.Close()
	}
}
