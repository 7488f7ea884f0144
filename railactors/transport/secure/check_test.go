package secure

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
)

// checkedText is what a checked connection writes of some texts after its handshake.
func checkedText(t testing.TB, texts ...[]byte) []byte {
	t.Helper()
	s := &script{}
	c := &conn{inner: s}
	c.ready.Store(true)
	c.out.seal = newChecker()
	for _, b := range texts {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return s.got.Bytes()
}

// readChecked reads what a checked connection gets, in pieces, until that ends.
func readChecked(stream []byte, piece int) (text []byte, err error) {
	c := &conn{inner: &script{text: stream}}
	c.ready.Store(true)
	c.in.seal = newChecker()
	for p := make([]byte, piece); err == nil; {
		var n int
		n, err = c.ReadFull(p)
		text = append(text, p[:n]...)
	}
	return text, err
}

// Whatever bit of whatever record flips, nothing of that record is read, and nothing that follows.
func TestNoFlippedBitIsRead(t *testing.T) {
	texts := [][]byte{[]byte("a"), bytes.Repeat([]byte("polyrail"), 20), []byte("the end")}
	whole := slices.Concat(texts...)
	stream := checkedText(t, texts...)
	if text, err := readChecked(stream, 10); !bytes.Equal(text, whole) || err == nil {
		t.Fatalf("%q, %v", text, err)
	}
	for bit := range 8 * len(stream) {
		changed := slices.Clone(stream)
		changed[bit/8] ^= 1 << (bit % 8)
		record, at := 0, 0 // that has the bit, and the bytes of text before it
		for end := 0; ; record++ {
			if end += headerBytes + len(texts[record]) + tagBytes; bit/8 < end {
				break
			}
			at += len(texts[record])
		}
		text, err := readChecked(changed, 10)
		if !bytes.Equal(text, whole[:at]) || err == nil {
			t.Fatalf("bit %d of record %d: %q, %v", bit, record, text, err)
		}
	}
}

func TestARecordThatIsMissingOrDoubledIsNoticed(t *testing.T) {
	first, both := checkedText(t, []byte("first")), checkedText(t, []byte("first"), []byte("second"))
	for what, stream := range map[string][]byte{
		"missing": both[len(first):],
		"doubled": slices.Concat(first, both),
	} {
		text, err := readChecked(stream, 1)
		if len(text) > len("first") || err == nil || !strings.Contains(err.Error(), "did not arrive as it was written") {
			t.Errorf("%s: %q, %v", what, text, err)
		}
	}
}

// Both sides of a checked connection say so, and what says something else is turned down.
func TestCheckedConnectionsAreOnBothSides(t *testing.T) {
	for _, dialed := range []bool{false, true} {
		s := &script{text: slices.Concat(preface, checkedText(t, []byte("text")))}
		c := newConn(s, (*conn).agree, dialed)
		p := make([]byte, 4)
		if _, err := c.ReadFull(p); err != nil || string(p) != "text" || !bytes.Equal(s.got.Bytes(), preface) {
			t.Errorf("dialed %v: %q, %v, written %q", dialed, p, err, s.got.Bytes())
		}
		if _, ok := c.Identity(); ok {
			t.Error("the other side has an identity")
		}
		for what, begin := range map[string][]byte{"plain": make([]byte, 200), "TLS": {22, 3, 1, 0, 5, 1, 2, 3, 4, 5}} {
			c := newConn(&script{text: append(begin, make([]byte, 100)...)}, (*conn).agree, dialed)
			if _, err := c.ReadFull(p); err != transport.ErrUnchecked || !c.plain {
				t.Errorf("%s, dialed %v: %v", what, dialed, err)
			}
		}
		changed := slices.Clone(preface)
		changed[len(changed)-1]++
		if _, err := newConn(&script{text: changed}, (*conn).agree, dialed).ReadFull(p); err != errChanged {
			t.Errorf("a preface that was changed: %v", err)
		}
	}
}

// BenchmarkChecked writes and reads frames of 64 KiB.
func BenchmarkChecked(b *testing.B) { benchmarkFrames(b, newChecker(), newChecker()) }
