package board

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/railactors/transport"
)

// memory is a board's, aligned as a mapping is. The function reports whether it was let go of.
func memory() (*transport.Memory, func() bool) {
	words, gone := make([]uint64, transport.ShownBytes/8), false
	m := transport.NewMemory(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), transport.ShownBytes), func() { gone = true })
	return m, func() bool { return gone }
}

// two are a page of a group, and its reader.
func two(t *testing.T, group uint64) (*Board, *Page, Reader) {
	t.Helper()
	m, _ := memory()
	b := New(m)
	p := b.Allot(group)
	r, ok := Find(m, group)
	if p == nil || !ok {
		t.Fatal("no page")
	}
	return b, p, r
}

var call = Call{Seq: 1, Digest: 7, Table: 3, Desc: op.Descriptor{Kind: op.KindAllReduce, DType: op.F32, Code: op.CodeSum,
	Algorithm: op.Tree, Batch: 2, Elements: 5}}

func TestAnOperandIsTakenAsItWasShown(t *testing.T) {
	_, p, r := two(t, 9)
	for size := range MaxOperand + 1 {
		c := call
		c.Seq = uint64(size + 1)
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		p.Show(&c, want)
		got := bytes.Repeat([]byte{0xee}, size+1)
		if took, _ := r.Take(c.Seq, c.Digest, c.Table, got[:size]); !took || !bytes.Equal(got[:size], want) || got[size] != 0xee {
			t.Fatalf("%d bytes: %v, %v", size, took, got)
		}
		if back := r.Call(c.Seq); back != c {
			t.Fatalf("%+v was shown, %+v read", c, back)
		}
	}
}

func TestWhatIsNotTheSameCallIsNotTaken(t *testing.T) {
	_, p, r := two(t, 9)
	p.Show(&call, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	for what, c := range map[string]struct {
		seq, digest uint64
		table       uint32
		bytes       int
		other       bool
	}{
		"another digest":               {1, 8, 3, 8, true},
		"another table":                {1, 7, 4, 8, true},
		"another length":               {1, 7, 3, 16, true},
		"one that nobody showed yet":   {2, 7, 3, 8, false},
		"one whose place it has taken": {1 + Cells, 7, 3, 8, false},
	} {
		if took, other := r.Take(c.seq, c.digest, c.table, make([]byte, c.bytes)); took || other != c.other {
			t.Errorf("%s: %v, %v", what, took, other)
		}
	}
}

func TestAPageThatWasGivenBackShowsNothing(t *testing.T) {
	b, p, r := two(t, 9)
	p.Show(&call, []byte{1})
	p.See(3)
	p.Done(5)
	p.Sleeps().Store(7)
	p.Free()
	next := b.Allot(10)
	next.Show(&call, []byte{2})
	if took, other := r.Take(call.Seq, call.Digest, call.Table, make([]byte, 1)); took || other || !r.Ended() {
		t.Errorf("the group that had the page before takes it: %v, %v", took, other)
	}
	of, ok := Find(b.memory, 10)
	if !ok || of.Sees(3) || of.Done() != 0 || of.Sleeps() != 0 || of.Shows(0) && of.page.cells[0].seq.Load() != 0 {
		t.Errorf("the next group begins with %+v, %v", of, ok)
	}
}

func TestPagesRunOutAndComeBack(t *testing.T) {
	m, gone := memory()
	b := New(m)
	var all []*Page
	for group := uint64(1); ; group++ {
		p := b.Allot(group)
		if p == nil {
			break
		}
		all = append(all, p)
	}
	if len(all) != pages || pages < 16 {
		t.Errorf("%d pages of %d", len(all), pages)
	}
	all[3].Free()
	if p := b.Allot(1000); p == nil || p.index != 3 {
		t.Error("the page that was given back is not used")
	} else {
		all[3] = p
	}
	m.Release()
	for _, p := range all {
		if gone() {
			t.Fatal("the memory is gone while pages are in use")
		}
		p.Free()
	}
	if !gone() {
		t.Error("the memory stays")
	}
}

// Who reads too late, since it was not seen, gets an operand whole or not at all.
func TestAnOperandIsNeverTakenInHalves(t *testing.T) {
	_, p, r := two(t, 9)
	const rounds = 20_000
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range rounds {
			c := call
			c.Seq = uint64(1 + i)
			p.Show(&c, bytes.Repeat([]byte{byte(c.Seq)}, MaxOperand))
		}
	})
	taken := 0
	for i := 0; i < 10*rounds; i++ {
		seq := uint64(1 + rand.IntN(rounds))
		if s := r.page.cells[i%Cells].seq.Load(); s > 0 {
			seq = s
		}
		got := make([]byte, MaxOperand)
		if took, other := r.Take(seq, call.Digest, call.Table, got); other {
			t.Fatal("of another call")
		} else if took {
			taken++
			if !bytes.Equal(got, bytes.Repeat([]byte{byte(seq)}, MaxOperand)) {
				t.Fatalf("seq %d: %v", seq, got)
			}
		}
	}
	writer.Wait()
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

// Whatever another process writes to its memory, who reads it stays within its own.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(1), uint64(1), uint16(8))
	f.Add(bytes.Repeat([]byte{0xff}, 300), ^uint64(0), ^uint64(0), uint16(MaxOperand))
	f.Fuzz(func(t *testing.T, pattern []byte, group, seq uint64, size uint16) {
		m, _ := memory()
		for at := 0; len(pattern) > 0 && at < len(m.Bytes()); at += len(pattern) {
			copy(m.Bytes()[at:], pattern)
		}
		r, ok := Find(m, group)
		if !ok {
			return
		}
		bytes := int(size) % (MaxOperand + 1)
		dst := make([]byte, bytes+1)
		dst[bytes] = 0xee
		for range 2 {
			r.Take(seq, 0, 0, dst[:bytes])
			c := r.Call(seq)
			if _, other := r.Take(seq, c.Digest, c.Table, dst[:bytes]); other && r.page.cells[seq%Cells].sizes.Load()>>32 == uint64(bytes) {
				t.Error("the same call is another one")
			}
			if dst[bytes] != 0xee {
				t.Error("more was written than there is room for")
			}
			_, _, _, _ = c.Desc.String(), r.Sees(63), r.Done(), r.Sleeps()
			seq++
		}
	})
}
