// Package transporttest is the conformance suite of transports: what pairs rely on,
// whatever carries the bytes. Every transport's tests run it.
package transporttest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// patience is how long the suite waits for what must happen before it calls it a hang.
const patience = 20 * time.Second

// more than any transport buffers between a writer and a reader that does not read
// (loopback sockets tune themselves up to some ten MiB).
const unreadable = 64 << 20

// Opener opens two devices that reach each other.
type Opener func(t *testing.T) (a, b transport.Device)

// Run runs the suite. It closes the devices that it opened.
func Run(t *testing.T, open Opener) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bed)
	}{
		{"BytesArriveInOrderWhateverTheSizes", testSizes},
		{"BothDirectionsAtOnce", testDuplex},
		{"VectoredWritesKeepTheirOrder", testVectored},
		{"AnEmptyReadOrWriteDoesNothing", testEmpty},
		{"TryWriteNeverBlocksAndSaysHowMuchWent", testTryWrite},
		{"AnExpiredReadDeadlineEndsAReadThatCanGoOn", testReadDeadline},
		{"AnExpiredWriteDeadlineEndsAWriteThatCanGoOn", testWriteDeadline},
		{"ADeadlineSetDuringAReadEndsIt", testLateDeadline},
		{"CloseUnblocksReaderAndWriter", testCloseUnblocks},
		{"WhatWasWrittenBeforeCloseArrives", testCloseDelivers},
		{"AStreamCutInsideAReadIsNotItsEnd", testUnexpectedEOF},
		{"AWriterHearsThatThePeerIsGone", testPeerGone},
		{"BothEndsAreBoundToTheirDevices", testAddresses},
		{"AClosedDeviceAcceptsAndDialsNoMore", testDeviceClose},
		{"ADialEndsWithItsContext", testDialContext},
		{"NobodyListensIsAnErrorThatNamesTheAddress", testRefused},
		{"WhatIsLentIsTheStream", testLend},
		{"WhatIsAtHandIsLentWhateverHappens", testLendWhole},
		{"ALoanEndsAsAReadDoes", testLendTorn},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := open(t)
			x := &bed{a: a, b: b}
			defer x.close()
			c.test(t, x)
		})
	}
}

// bed is a pair of devices and the connections made between them.
type bed struct {
	a, b  transport.Device
	conns []transport.Conn
}

func (x *bed) close() {
	for _, c := range x.conns {
		c.Close()
	}
	x.a.Close()
	x.b.Close()
}

// connect dials from a to b.
func (x *bed) connect(t *testing.T) (near, far transport.Conn) {
	t.Helper()
	type accepted struct {
		conn transport.Conn
		err  error
	}
	ch := make(chan accepted, 1)
	go func() {
		c, err := x.b.Accept()
		ch <- accepted{c, err}
	}()
	near, err := x.a.Dial(t.Context(), x.b.Addr())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	got := <-ch
	if got.err != nil {
		t.Fatalf("accept: %v", got.err)
	}
	for _, c := range []transport.Conn{near, got.conn} {
		check(t, c.SetReadDeadline(time.Now().Add(patience)))
		check(t, c.SetWriteDeadline(time.Now().Add(patience)))
	}
	x.conns = append(x.conns, near, got.conn)
	return near, got.conn
}

func testSizes(t *testing.T, x *bed) {
	near, far := x.connect(t)
	rng := rand.New(rand.NewPCG(1, 2))
	data := pattern(3 << 20)
	// The reader's pieces have nothing to do with the writer's.
	done := make(chan error, 1)
	go func() {
		for rest := data; len(rest) > 0; {
			n := randomSize(rng, len(rest))
			if k, err := near.Write(rest[:n]); err != nil || k != int64(n) {
				done <- errors.Join(err, io.ErrShortWrite)
				return
			}
			rest = rest[n:]
		}
		done <- nil
	}()
	sizes := rand.New(rand.NewPCG(3, 4))
	got := make([]byte, len(data))
	for rest := got; len(rest) > 0; {
		n := randomSize(sizes, len(rest))
		if k, err := far.ReadFull(rest[:n]); err != nil || k != n {
			t.Fatalf("read %d of %d: %v", k, n, err)
		}
		rest = rest[n:]
	}
	check(t, <-done)
	equal(t, got, data)
	if n := far.Buffered(); n != 0 {
		t.Errorf("%d bytes at hand after the last one", n)
	}
}

func testDuplex(t *testing.T, x *bed) {
	near, far := x.connect(t)
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for i, pair := range [][2]transport.Conn{{near, far}, {far, near}} {
		data := pattern(2<<20 + i)
		wg.Go(func() {
			_, err := pair[0].Write(data)
			errs <- err
		})
		wg.Go(func() {
			got := make([]byte, len(data))
			_, err := pair[1].ReadFull(got)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("other bytes arrived")
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		check(t, err)
	}
}

func testVectored(t *testing.T, x *bed) {
	near, far := x.connect(t)
	data := pattern(1 << 20)
	// More pieces than one vectored system call takes, empty ones and nil among them.
	var bufs [][]byte
	rng := rand.New(rand.NewPCG(5, 6))
	for rest := data; len(rest) > 0; {
		n := min(rng.IntN(1200), len(rest))
		bufs = append(bufs, rest[:n:n], nil)
		rest = rest[n:]
	}
	done := make(chan error, 1)
	go func() {
		n, err := near.Write(bufs...)
		if err == nil && n != int64(len(data)) {
			err = io.ErrShortWrite
		}
		done <- err
	}()
	equal(t, readN(t, far, len(data)), data)
	check(t, <-done)
}

func testEmpty(t *testing.T, x *bed) {
	near, far := x.connect(t)
	for _, bufs := range [][][]byte{nil, {nil}, {{}, {}}} {
		if n, err := near.Write(bufs...); n != 0 || err != nil {
			t.Errorf("write of nothing: %d, %v", n, err)
		}
		if n, err := near.TryWrite(bufs...); n != 0 || err != nil {
			t.Errorf("try to write nothing: %d, %v", n, err)
		}
	}
	if n, err := far.ReadFull(nil); n != 0 || err != nil {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
}

func testTryWrite(t *testing.T, x *bed) {
	near, far := x.connect(t)
	data := pattern(unreadable)
	sent := fill(t, near, data)
	equal(t, readN(t, far, int(sent)), data[:sent])
	// There is room again; the network may need a moment to say so, which Write waits for.
	if n, err := near.Write(data[sent:]); err == nil {
		t.Fatalf("wrote %d bytes that nobody reads", n)
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	} else {
		equal(t, readN(t, far, int(n)), data[sent:sent+n])
	}
}

// fill writes without blocking until nothing goes any more.
func fill(t *testing.T, c transport.Conn, data []byte) (sent int64) {
	t.Helper()
	for {
		half := (int64(len(data)) - sent) / 2
		n, err := c.TryWrite(data[sent:sent+half], data[sent+half:])
		check(t, err)
		if n == 0 {
			break
		}
		if sent += n; sent == int64(len(data)) {
			t.Fatalf("%d bytes went without a reader", sent)
		}
	}
	check(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	return sent
}

func testReadDeadline(t *testing.T, x *bed) {
	near, far := x.connect(t)
	data := pattern(10000)
	if _, err := near.Write(data[:6000]); err != nil {
		t.Fatal(err)
	}
	got := readN(t, far, 1000)
	check(t, far.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	rest := make([]byte, 9000)
	n, err := far.ReadFull(rest)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > 5000 {
		t.Fatalf("read %d bytes, %v; want at most 5000 and an expired deadline", n, err)
	}
	if k, err := far.ReadFull(rest[n:]); k != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the deadline is past: read %d bytes, %v", k, err)
	}
	check(t, far.SetReadDeadline(time.Now().Add(patience)))
	if _, err := near.Write(data[6000:]); err != nil {
		t.Fatal(err)
	}
	if k, err := far.ReadFull(rest[n:]); err != nil || n+k != len(rest) {
		t.Fatalf("went on for %d of %d bytes: %v", k, len(rest)-n, err)
	}
	equal(t, append(got, rest...), data)
}

func testWriteDeadline(t *testing.T, x *bed) {
	near, far := x.connect(t)
	data := pattern(unreadable)
	check(t, near.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	n, err := near.Write(data)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == int64(len(data)) {
		t.Fatalf("wrote %d bytes, %v; want an expired deadline", n, err)
	}
	if k, err := near.TryWrite(data[n:]); k != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the deadline is past: wrote %d bytes, %v", k, err)
	}
	check(t, near.SetWriteDeadline(time.Time{}))
	tail := data[n : n+100]
	done := make(chan error, 1)
	go func() {
		_, err := near.Write(tail)
		done <- err
	}()
	equal(t, readN(t, far, int(n)+100), data[:n+100])
	check(t, <-done)
}

func testLateDeadline(t *testing.T, x *bed) {
	near, far := x.connect(t)
	_ = near
	check(t, far.SetReadDeadline(time.Time{}))
	done := make(chan error, 1)
	go func() {
		_, err := far.ReadFull(make([]byte, 1))
		done <- err
	}()
	check(t, far.SetReadDeadline(time.Now().Add(-time.Second)))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
