package transporttest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport"
)

// The tests in this file are about a transport.Lender. Others pass them.

// borrower keeps what it was lent.
type borrower struct {
	bytes.Buffer
	during func(piece []byte) // nil, or what happens while it has one
}

func (b *borrower) Borrow(piece []byte) {
	if b.during != nil {
		b.during(piece)
	}
	b.Write(piece)
}

// lends returns the connection as a Lender.
func lends(t *testing.T, c transport.Conn) transport.Lender {
	t.Helper()
	l, ok := c.(transport.Lender)
	if !ok {
		t.Skip("it lends nothing")
	}
	return l
}

func testLend(t *testing.T, x *bed) {
	near, far := x.connect(t)
	lender := lends(t, far)
	data := pattern(3 << 20)
	done := make(chan error, 1)
	go func() {
		_, err := near.Write(data)
		done <- err
	}()
	rng := rand.New(rand.NewPCG(5, 6))
	var got borrower
	for got.Len() < len(data) {
		size := randomSize(rng, len(data)-got.Len())
		if rng.IntN(2) == 0 {
			got.Write(readN(t, far, size))
		} else if n, err := lender.Lend(size, &got); n != size || err != nil {
			t.Fatalf("lent %d of %d bytes: %v", n, size, err)
		}
	}
	check(t, <-done)
	equal(t, got.Bytes(), data)
	if n, err := lender.Lend(0, &got); n != 0 || err != nil {
		t.Errorf("of nothing %d bytes were lent, %v", n, err)
	}
}

// What is at hand can be folded over what nobody has a second time.
func testLendWhole(t *testing.T, x *bed) {
	near, far := x.connect(t)
	lender := lends(t, far)
	data := pattern(6000)
	if _, err := near.Write(data); err != nil {
		t.Fatal(err)
	}
	var got borrower
	got.Write(readN(t, far, 1000))
	if n := far.Buffered(); n != 5000 {
		t.Fatalf("%d bytes are buffered", n)
	}
	check(t, near.Close())
	check(t, far.SetReadDeadline(time.Unix(1, 0)))
	got.during = func([]byte) { far.Close() }
	if n, err := lender.Lend(5000, &got); n != 5000 || err != nil {
		t.Errorf("lent %d of 5000 bytes that were buffered: %v", n, err)
	}
	equal(t, got.Bytes(), data)
	if n, err := lender.Lend(1, &got); n != 0 || err == nil {
		t.Errorf("after Close %d bytes were lent", n)
	}
}

func testLendTorn(t *testing.T, x *bed) {
	near, far := x.connect(t)
	lender := lends(t, far)
	data := pattern(900)
	if _, err := near.Write(data[:500]); err != nil {
		t.Fatal(err)
	}
	var got borrower
	check(t, far.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	if n, err := lender.Lend(700, &got); n != got.Len() || n > 500 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("lent %d bytes, %d were borrowed, %v; want an expired deadline", n, got.Len(), err)
	}
	check(t, far.SetReadDeadline(time.Now().Add(patience)))
	if _, err := near.Write(data[500:]); err != nil {
		t.Fatal(err)
	}
	check(t, near.Close())
	got.Write(readN(t, far, 800-got.Len()))
	if n, err := lender.Lend(200, &got); n != 100 || err != io.ErrUnexpectedEOF {
		t.Errorf("lent %d of 100 bytes, %v", n, err)
	}
	equal(t, got.Bytes(), data)
	if n, err := lender.Lend(1, &got); n != 0 || err != io.EOF {
		t.Errorf("at the end %d bytes were lent, %v", n, err)
	}
}
