package sharp_test

import (
	"encoding/binary"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/sharp"
)

// script reads what a hostile neighbour says from a fuzzer's bytes.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

// number is one from the wire: near what is awaited, or anything.
func (s *script) number() uint64 {
	b := s.byte()
	if b < 0xf0 {
		return uint64(b % 16)
	}
	var wide [8]byte
	for i := range wide {
		wide[i] = s.byte()
	}
	return binary.LittleEndian.Uint64(wide[:])
}

func (s *script) request() sharp.Request {
	b := s.byte()
	return sharp.Request{Seq: uint64(b & 1), Bytes: int(int8(b)) >> 6, Block: int(int8(b)) >> 7,
		Desc: op.Descriptor{Kind: op.Kind(b >> 1 & 1 * 0xff), Code: op.Code(b >> 2 & 1 * 0xff)}}
}

// FuzzNode lets children and a parent say anything. The node must neither panic, nor keep more than
// its bounds, nor do anything for a fragment in the wrong order.
func FuzzNode(f *testing.F) {
	f.Add([]byte{7, 0, 0, 0, 0, 1, 0, 0, 2, 0, 3, 0})
	f.Add([]byte{3, 0, 0, 5, 0, 0, 0xff, 1, 1, 1, 1, 1, 1, 1, 1, 0, 5, 0, 0, 6, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := script(data)
		shape := s.byte()
		h := &hostile{t: t, n: sharp.NewNode(sharp.NodeConfig{Children: 1 + int(shape>>1&3),
			Window: 1 + int(shape>>3&3), Root: shape&1 == 1}), coming: map[[2]uint64]bool{}, frames: map[uint64]int{},
			forwarded: map[uint64]bool{}}
		for len(s) > 0 {
			h.step(&s)
		}
	})
}

// hostile drives a node as its neighbours' frames would.
type hostile struct {
	t         *testing.T
	n         *sharp.Node
	coming    map[[2]uint64]bool // child, number
	frames    map[uint64]int     // by result: frames that read it; a kernel is one
	forwarded map[uint64]bool
}

func (h *hostile) step(s *script) {
	child := int(s.byte())
	what := child >> 4
	child &= 15
	child %= h.n.Children
	number := s.number()
	at := [2]uint64{uint64(child), number}
	switch what % 7 {
	case 0:
		err := h.n.Place(child, number, s.request())
		if err == nil {
			h.coming[at] = true
		} else if err.Error() == "" {
			h.t.Fatal("an error that says nothing")
		}
	case 1:
		if h.coming[at] {
			delete(h.coming, at)
			h.carry(h.n.Arrived(child, number, nil))
		}
	case 2:
		if h.coming[at] {
			delete(h.coming, at)
			h.n.Torn(child, number)
		}
	case 3: // two at once: both are expected when they begin
		if h.n.Expects(number) && h.forwarded[number] {
			h.carry(h.n.Returned(number, nil))
			h.carry(h.n.Returned(number, nil))
		}
	case 4:
		out, _ := h.n.Held(child, number, nil)
		h.carry(out)
	case 5:
		out, _ := h.n.Settled(number, nil)
		h.carry(out)
	case 6:
		if h.frames[number] > 0 {
			h.frames[number]--
			h.carry(h.n.Released(number, nil))
		}
	}
	if open := len(h.coming); open > h.n.Children*h.n.Window {
		h.t.Fatalf("%d operands of %d children", open, h.n.Children)
	}
}

func (h *hostile) carry(actions []sharp.Action) {
	for _, a := range actions {
		switch a.Kind {
		case sharp.Fold:
			if _, twice := h.frames[a.Number]; twice {
				h.t.Fatalf("fragment %d is folded twice", a.Number)
			}
			h.frames[a.Number] = 0
			if len(h.frames) > 2*h.n.Window {
				h.t.Fatalf("%d results of a window of %d", len(h.frames), h.n.Window)
			}
			h.carry(h.n.Folded(a.Number, nil))
		case sharp.Forward, sharp.Respond:
			if _, there := h.frames[a.Number]; !there {
				h.t.Fatalf("%+v of a result that isn't there", a)
			}
			h.frames[a.Number]++
			h.forwarded[a.Number] = true
		case sharp.Free:
			if h.frames[a.Number] != 0 {
				h.t.Fatalf("fragment %d is freed while %d frames read it", a.Number, h.frames[a.Number])
			}
			delete(h.frames, a.Number)
		}
	}
}

// FuzzLeaf lets a node and rank 0 say anything. The leaf must neither panic nor take a claim that
// can't be true.
func FuzzLeaf(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 1, 1, 2, 1})
	f.Add([]byte{0, 0, 0, 1, 0, 2, 0xff, 9, 9, 9, 9, 9, 9, 9, 9, 4, 0, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := script(data)
		l := sharp.NewLeaf(1 + int(s.byte()&3))
		l.Take(200)
		for len(s) > 0 {
			received, settled := l.Received(), l.Settled()
			what, number := s.byte(), s.number()
			switch what % 6 {
			case 0:
				l.Send(l.Sent())
			case 1:
				if l.Expects(number) {
					l.Arrived(number)
					l.Arrived(number) // another one that began before
				}
			case 2:
				if l.SettledTo(number) == nil && number > received {
					t.Fatalf("%d are settled, %d are here", number, received)
				}
			case 3:
				l.Placed(min(number, l.Settled()))
			case 4:
				l.Fence()
			case 5:
				if l.Repaired(number) == nil && (number < settled || number > received) {
					t.Fatalf("repaired from %d on; %d are settled, %d are here", number, settled, received)
				}
			}
			if l.Settled() > l.Received() || l.Received() > l.Sent() || l.Sent() > l.Received()+4 ||
				l.Settled() < settled {
				t.Fatalf("sent %d, received %d, settled %d", l.Sent(), l.Received(), l.Settled())
			}
		}
	})
}
