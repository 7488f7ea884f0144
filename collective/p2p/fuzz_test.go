package p2p

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// FuzzFrames: whatever frames a rank sends, in whatever order, nothing panics, no memory outside a
// receive's is given out, no part of it twice at once, and limits hold. The input is a sequence of
// records: what happens, a number, and two values.
func FuzzFrames(f *testing.F) {
	record := func(what byte, number uint16, a, b uint32) []byte {
		r := binary.LittleEndian.AppendUint16([]byte{what}, number)
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(r, a), b)
	}
	join := func(records ...[]byte) (all []byte) {
		for _, r := range records {
			all = append(all, r...)
		}
		return all
	}
	f.Add(join(record(0, 1, 100, 0), record(9, 0, 0, 1000), record(12, 0, 0, 0)))
	f.Add(join(record(9, 0, 0, 100_000), record(1, 1, 100_000, 0), record(2, 1, 0, 65536),
		record(12, 0, 0, 0),
		record(2, 1, 65536, 34_464), record(13, 0, 0, 0)))
	f.Add(join(record(9, 0, 0, 9), record(3, 2, 0, 0), record(1, 1, 5, 0), record(1, 2, 5, 0),
		record(4, 1, 1, 1)))
	f.Add(join(record(10, 0, 0, 100_000), record(6, 1, 0, 0), record(11, 0, 0, 0),
		record(6, 9, 0, 0), record(7, 0, 1<<31, 0)))
	f.Add(join(record(2, 1, 0, 1), record(0, 0, 1, 1), record(1, 65535, 1, 1), record(5, 3, 0, 0),
		record(8, 0, 0, 0)))
	f.Add(join(record(9, 0, 0, 0), record(1, 1, 0, 0), record(2, 1, 0, 0), record(2, 1, 0, 0),
		record(12, 0, 0, 0), record(12, 0, 0, 0))) // an empty message's part, twice at once
	f.Fuzz(func(t *testing.T, input []byte) { runHostile(t, input) })
}

func runHostile(t *testing.T, input []byte) {
	cfg := Config{Size: 2, Rails: 2, EagerBytes: 8 << 10, CreditBytes: 32 << 10,
		WindowBytes: 128 << 10, Granted: 2, Open: 8, Help: true}
	h := &hostile{t: t, cfg: cfg, core: New[*job](cfg), done: make(map[*job]bool)}
	for ; len(input) >= 11; input = input[11:] {
		h.record(input[0], uint64(binary.LittleEndian.Uint16(input[1:])),
			int(binary.LittleEndian.Uint32(input[3:])),
			int(binary.LittleEndian.Uint32(input[7:])))
	}
	var fx Effects[*job]
	h.core.Break(errCancel, &fx)
	h.carry(&fx)
	for len(h.places) > 0 {
		h.leave(0, true)
	}
	for _, j := range h.jobs {
		if !h.done[j] {
			t.Fatal("a transfer has no end")
		}
	}
}

// hostile plays rank 1 to the core of rank 0.
type hostile struct {
	t      *testing.T
	cfg    Config
	core   *Core[*job]
	jobs   []*job
	done   map[*job]bool
	places []filling
}

type filling struct {
	Place[*job]
	length int
}

func (h *hostile) record(what byte, number uint64, a, b int) {
	var fx Effects[*job]
	const other = op.Rank(1)
	e := Envelope{Tag(b % 3), op.Uint8, uint64(a)}
	var err error
	switch what % 15 {
	case 0:
		var p Place[*job]
		if p, err = h.core.Eager(other, number, e, a, &fx); err == nil {
			h.land(p, a)
		}
	case 1:
		err = h.core.Asked(other, number, e, &fx)
	case 2:
		var p Place[*job]
		if p, err = h.core.Part(other, number, a, b); err == nil {
			h.land(p, b)
		}
	case 3:
		err = h.core.Canceled(other, number, &fx)
	case 4:
		err = h.core.Refused(other, number, e, &fx)
	case 5:
		err = h.core.Dropped(other, number, &fx)
	case 6:
		err = h.core.Granted(other, number, &fx)
	case 7:
		err = h.core.Credited(other, uint64(a)<<8)
	case 8:
		h.core.Departed(other, number, errCancel, &fx)
	case 9:
		j := &job{buf: make([]byte, b%(1<<20))}
		j.recv = &Recv[*job]{Work: j, From: op.Rank(a%2*2 - 1),
			Room: Envelope{AnyTag, op.Uint8, uint64(len(j.buf))}}
		if h.core.Recv(j.recv, &fx) == nil {
			h.jobs = append(h.jobs, j)
		}
	case 10:
		j := &job{}
		if len(h.jobs) > 50 {
			return
		}
		if j.send, _ = h.core.Send(j, other, Envelope{0, op.Uint8, uint64(b % (1 << 20))}, nil,
			[]uint32{1, 1}, &fx); j.send != nil {
			h.jobs = append(h.jobs, j)
		}
	case 11:
		if len(h.jobs) > 0 {
			if j := h.jobs[a%len(h.jobs)]; j.send != nil {
				h.core.CancelSend(j.send, errCancel, &fx)
			} else {
				h.core.CancelRecv(j.recv, errCancel, &fx)
			}
		}
	default:
		if len(h.places) > 0 {
			h.leave(a%len(h.places), what%15 == 14)
		}
	}
	if err != nil && !errors.Is(err, errFrame) {
		h.t.Fatalf("%v", err)
	}
	h.carry(&fx)
	in := h.core.from[other]
	if in == nil || h.core.broken != nil {
		return
	}
	granted := 0
	for _, m := range in.messages {
		if m.granted {
			granted++
		}
	}
	if in.held > h.cfg.CreditBytes || granted != in.granted ||
		len(in.messages) > h.cfg.Open+h.cfg.CreditBytes/Overhead || in.granted > h.cfg.Granted {
		h.t.Fatalf("%d bytes, %d messages, %d granted: beyond the limits", in.held,
			len(in.messages), in.granted)
	}
}

// land fills what the core gives out, to see that it exists and that nobody else fills it.
func (h *hostile) land(p Place[*job], length int) {
	switch {
	case p.Recv != nil:
		if h.done[p.Recv.Work] {
			h.t.Fatal("memory of a receive that is over")
		}
		_ = p.Recv.Work.buf[p.Offset : p.Offset+length]
		for _, o := range h.places {
			if o.Recv == p.Recv && length > 0 && p.Offset < o.Offset+o.length && o.Offset < p.Offset+length {
				h.t.Fatal("memory is given out twice")
			}
		}
	case p.Message != nil:
		p.Message.Data.Bytes = make([]byte, length)
	default:
		return
	}
	h.places = append(h.places, filling{p, length})
}

func (h *hostile) leave(i int, torn bool) {
	p := h.places[i]
	h.places = append(h.places[:i], h.places[i+1:]...)
	var fx Effects[*job]
	switch {
	case p.Recv != nil && torn:
		h.core.Torn(p.Recv, p.Ref, p.Recv.cause != nil, &fx)
	case p.Recv != nil:
		h.core.Arrived(p.Recv, p.Ref, &fx)
	case torn:
		h.core.TornHeld(p.Message, &fx)
	default:
		h.core.ArrivedHeld(p.Message, &fx)
	}
	h.carry(&fx)
}

func (h *hostile) carry(fx *Effects[*job]) {
	for i := 0; i < len(fx.Frames); i++ {
		if f := fx.Frames[i]; f.Verb == Part {
			h.core.Released(f.Send, f.Rail, f.Length, nil, fx)
		}
	}
	for i := 0; i < len(fx.Copies); i++ {
		c := fx.Copies[i]
		copy(c.Recv.Work.buf, c.Message.Data.Bytes)
		h.core.Copied(c.Message, fx)
	}
	for _, d := range fx.Done {
		if h.done[d.Work] {
			h.t.Fatal("ended twice")
		}
		h.done[d.Work] = true
	}
}
