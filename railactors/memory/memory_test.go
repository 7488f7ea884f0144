package memory

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestBuffersAreAlignedAndOfTheirLength(t *testing.T) {
	p := NewPool(1 << 30)
	defer p.Close()
	for _, n := range []int{1, 63, 255, 256, 257, 4096, 65537, 1 << 20, 2<<20 - 1, 2 << 20, 3 << 20, MaxBuffer} {
		b := p.Get(n)
		if len(b) != n {
			t.Fatalf("Get(%d): %d bytes", n, len(b))
		}
		if misaligned(b) != 0 {
			t.Errorf("Get(%d): at %p, not aligned to %d", n, unsafe.SliceData(b), Alignment)
		}
		b[0], b[n-1] = 1, 1
		p.Put(b)
	}
}

func TestHeapAlignsWhatTheAllocatorDidNot(t *testing.T) {
	for _, size := range []int{256, 320, 1000, 4096} { // 1000: a class of 1024 bytes; 320: aligned to 64 at most
		for range 100 {
			if b := heap(size); misaligned(b) != 0 || len(b) != size || cap(b) != size {
				t.Fatalf("heap(%d): %d bytes of %d at %p", size, len(b), cap(b), unsafe.SliceData(b))
			}
		}
	}
}

func TestEmptyBuffersNeedNoPut(t *testing.T) {
	p := NewPool(0)
	b := p.Get(0)
	if b == nil || len(b) != 0 {
		t.Fatalf("Get(0) = %v", b)
	}
	p.Put(b)
}

func TestGetRefusesBeyondTheLimit(t *testing.T) {
	p := NewPool(1024)
	defer p.Close()
	a, b := p.Get(512), p.Get(300)
	if a == nil || b == nil {
		t.Fatal("refused within the limit")
	}
	if p.Get(1) != nil {
		t.Fatal("went beyond the limit")
	}
	if s := p.Stats(); s.InUse != 1024 || s.Refused != 1 || s.Gets != 3 {
		t.Errorf("%+v", s)
	}
	p.Put(b)
	if p.Get(512) == nil {
		t.Error("refused what was put back")
	}
}

func TestGetRefusesImpossibleSizes(t *testing.T) {
	p := NewPool(1 << 40)
	defer p.Close()
	for _, n := range []int{-1, MaxBuffer + 1} {
		if p.Get(n) != nil {
			t.Errorf("Get(%d) gave a buffer", n)
		}
	}
}

func TestKeptBuffersMakeRoomForOtherSizes(t *testing.T) {
	p := NewPool(4096)
	defer p.Close()
	var small [][]byte
	for range 16 {
		small = append(small, p.Get(256))
	}
	for _, b := range small {
		p.Put(b)
	}
	if p.Get(4096) == nil {
		t.Fatalf("kept buffers count against the limit for good: %+v", p.Stats())
	}
	if s := p.Stats(); s.Kept != 0 || s.InUse != 4096 || s.Trimmed != 16 {
		t.Errorf("%+v", s)
	}
}

func TestPutPanicsOnMisuse(t *testing.T) {
	p, other := NewPool(1<<20), NewPool(1<<20)
	defer p.Close()
	twice := p.Get(5000)
	p.Put(twice)
	for name, c := range map[string]struct {
		buf  []byte
		want string
	}{
		"twice":        {twice, "put twice"},
		"other pool's": {other.Get(300), "did not make"},
		"caller's":     {make([]byte, 512), "did not make"},
		"odd size":     {make([]byte, 500), "no pool made"},
		"cut in front": {p.Get(512)[1:], "no pool made"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, c.want) {
					t.Errorf("panic %q, want %q", r, c.want)
				}
			}()
			p.Put(c.buf)
		})
	}
}

func TestTrimFreesWhatNobodyNeeded(t *testing.T) {
	p := NewPool(1 << 20)
	defer p.Close()
	a, b, c := p.Get(1024), p.Get(1024), p.Get(1024)
	p.Put(a)
	p.Put(b)
	p.Put(c)
	p.Trim() // all three were in use since the beginning
	if s := p.Stats(); s.Kept != 3*1024 {
		t.Fatalf("after the first trim: %+v", s)
	}
	p.Put(p.Get(1024)) // one is needed
	p.Trim()
	if s := p.Stats(); s.Kept != 1024 || s.Trimmed != 2 {
		t.Fatalf("after the second trim: %+v", s)
	}
}

func TestIdleMemoryGoesBackByItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := NewPool(1 << 20)
		a, b := p.Get(100_000), p.Get(200)
		p.Put(a)
		advance(2 * trimEvery)
		if s := p.Stats(); s.Kept != 0 || s.InUse != 256 {
			t.Fatalf("idle for two periods: %+v", s)
		}
		p.Put(b)
		if s := p.Stats(); s.Kept != 256 {
			t.Fatalf("put after the timer ended: %+v", s)
		}
		advance(2 * trimEvery)
		if s := p.Stats(); s.Kept != 0 {
			t.Fatalf("the timer was not set again: %+v", s)
		}
	})
}

// advance lets virtual time pass, and what it brings about happen.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestClosedPoolKeepsNothing(t *testing.T) {
	p := NewPool(1 << 24)
	a, b := p.Get(1000), p.Get(4<<20)
	p.Put(a)
	p.Close()
	if s := p.Stats(); s.Kept != 0 || s.InUse != 4<<20 {
		t.Fatalf("%+v", s)
	}
	p.Put(b)
	if s := p.Stats(); s.Kept != 0 || s.InUse != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	p := NewPool(1 << 24)
	defer p.Close()
	p.Put(p.Get(64 << 10))
	if n := testing.AllocsPerRun(1000, func() { p.Put(p.Get(64 << 10)) }); n != 0 {
		t.Errorf("%v allocations per Get and Put", n)
	}
	a := NewArena(p)
	run := func() {
		for range 8 {
			if _, err := a.Alloc(4096); err != nil {
				t.Fatal(err)
			}
		}
		a.Free()
	}
	run()
	if n := testing.AllocsPerRun(1000, run); n != 0 {
		t.Errorf("%v allocations per use of an arena", n)
	}
}

func TestArenaNamesTheLimit(t *testing.T) {
	p := NewPool(8192)
	a := NewArena(p)
	if _, err := a.Alloc(4096); err != nil {
		t.Fatal(err)
	}
	_, err := a.Alloc(5000)
	var limit *LimitError
	if !errors.As(err, &limit) || *limit != (LimitError{Need: 5000, InUse: 4096, Limit: 8192}) || !errors.Is(err, fault.ErrLimit) {
		t.Fatalf("error %v", err)
	}
	if _, err := a.Alloc(MaxBuffer + 1); !errors.Is(err, fault.ErrLimit) || !strings.Contains(err.Error(), "largest") {
		t.Fatalf("error %v", err)
	}
	a.Free()
	if s := p.Stats(); s.InUse != 0 {
		t.Fatalf("an arena that was freed holds %+v", s)
	}
	if b, err := a.Alloc(8000); err != nil || len(b) != 8000 {
		t.Fatalf("used again: %d bytes, %v", len(b), err)
	}
}

// The pool against the plainest description of it: bytes in use and kept never pass the limit,
// and no two buffers overlap.
func TestPoolKeepsItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 1<<16).Draw(t, "limit")
		p := NewPool(limit)
		var held [][]byte
		inUse := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				n := rapid.IntRange(1, 1<<15).Draw(t, "n")
				b := p.Get(n)
				fits := inUse+int64(sizeOf(classOf(n))) <= limit
				if (b != nil) != fits {
					t.Fatalf("Get(%d) = %d bytes with %d of %d in use", n, len(b), inUse, limit)
				}
				if b != nil {
					for i := range b {
						b[i] = byte(len(held))
					}
					held = append(held, b)
					inUse += int64(cap(b))
				}
			},
			"put": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				last := held[len(held)-1]
				for _, x := range last {
					if x != byte(len(held)-1) {
						t.Fatal("two buffers overlap")
					}
				}
				held = held[:len(held)-1]
				inUse -= int64(cap(last))
				p.Put(last)
			},
			"trim": func(*rapid.T) { p.Trim() },
			"": func(t *rapid.T) {
				if s := p.Stats(); s.InUse != inUse || s.InUse+s.Kept > limit {
					t.Fatalf("%+v, want %d in use", s, inUse)
				}
			},
		})
	})
}

func TestConcurrentUseNeverSharesABuffer(t *testing.T) {
	p := NewPool(256 << 10)
	defer p.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 2000 {
				b := p.Get(1 + r.IntN(32<<10))
				if b == nil {
					continue
				}
				b[0], b[len(b)-1] = byte(g), byte(g)
				if r.IntN(50) == 0 {
					p.Trim()
				}
				if b[0] != byte(g) || b[len(b)-1] != byte(g) {
					t.Error("a buffer was handed out twice")
				}
				p.Put(b)
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.InUse != 0 || s.Kept > s.Limit {
		t.Errorf("%+v", s)
	}
}

func BenchmarkGetPut(b *testing.B) {
	p := NewPool(1 << 24)
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		p.Put(p.Get(64 << 10))
	}
}
