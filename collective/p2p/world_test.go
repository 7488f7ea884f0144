package p2p

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/polyrail/polyrail/collective/op"
)

// job is the handle of a send or a receive in the simulation.
type job struct {
	rank      op.Rank // whose
	send      *Send[*job]
	recv      *Recv[*job]
	buf       []byte
	done      bool
	err       error
	status    Status
	cancelled bool
}

// world is some ranks with their cores. Frames wait in a bag, from which they are taken in any
// order; each arrives in two steps, as a reader takes time to fill memory.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	cores []*Core[*job]
	bag   []*packet
	tears int // parts per hundred of frames that are torn, and come again
}

type packet struct {
	Frame[*job]
	from    op.Rank
	payload []byte // of the sender, read while it lands
	landing bool
	place   Place[*job]
	dst     []byte
	revoked bool
}

func newWorld(t testing.TB, seed uint64, n int, adapt func(*Config)) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	for range n {
		cfg := Config{Size: n, Rails: 3, EagerBytes: 8 << 10, CreditBytes: 32 << 10,
			WindowBytes: 256 << 10, Granted: 3, Open: 100, Help: seed%2 == 1}
		if adapt != nil {
			adapt(&cfg)
		}
		w.cores = append(w.cores, New[*job](cfg))
	}
	return w
}

var errCancel = errors.New("cancelled by the test")

// pattern is the bytes of a rank's message, by a label.
func pattern(from op.Rank, label, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(int(from)*31 + label*7 + i + i>>8)
	}
	return b
}

func (w *world) send(from, to op.Rank, tag Tag, data []byte) *job {
	w.t.Helper()
	j := &job{rank: from, buf: data}
	var fx Effects[*job]
	copied := slices.Clone(data)
	if copied == nil {
		copied = []byte{}
	}
	s, err := w.cores[from].Send(j, to, Envelope{tag, op.Uint8, uint64(len(data))}, copied,
		[]uint32{2, 0, 1}, &fx)
	if err != nil {
		j.done, j.err = true, err
		return j
	}
	j.send = s
	w.carry(from, &fx)
	return j
}

func (w *world) recv(rank, from op.Rank, tag Tag, room int) *job {
	w.t.Helper()
	return w.recvOf(rank, from, Envelope{tag, op.Uint8, uint64(room)}, false)
}

// recvOf posts a receive with room for bytes of any type.
func (w *world) recvOf(rank, from op.Rank, room Envelope, exact bool) *job {
	w.t.Helper()
	j := &job{rank: rank, buf: make([]byte, room.Count)}
	j.recv = &Recv[*job]{Work: j, From: from, Room: room, Exact: exact}
	var fx Effects[*job]
	if err := w.cores[rank].Recv(j.recv, &fx); err != nil {
		j.done, j.err = true, err
		return j
	}
	w.carry(rank, &fx)
	return j
}

func (w *world) cancel(j *job) {
	var fx Effects[*job]
	j.cancelled = true
	if j.send != nil {
		w.cores[j.rank].CancelSend(j.send, errCancel, &fx)
	} else if j.recv != nil {
		w.cores[j.rank].CancelRecv(j.recv, errCancel, &fx)
	}
	w.carry(j.rank, &fx)
	if j.send != nil && !j.done && !j.send.GivenUp() {
		w.t.Fatal("a send that was cancelled goes on")
	}
}

// carry does what a core of this rank asks for.
func (w *world) carry(rank op.Rank, fx *Effects[*job]) {
	w.t.Helper()
	core := w.cores[rank]
	frame, taken, copied := 0, 0, 0
	for {
		switch {
		case frame < len(fx.Frames):
			w.frame(rank, fx.Frames[frame])
			frame++
		case taken < len(fx.Revoke):
			taken++
			w.revoke(rank, fx.Revoke[taken-1], fx)
		case copied < len(fx.Copies):
			c := fx.Copies[copied]
			copied++
			w.writes(c.Recv.Work)
			copy(c.Recv.Work.buf, c.Message.Data.Bytes)
			core.Copied(c.Message, fx)
		default:
			for _, d := range fx.Done {
				if d.Work.done {
					w.t.Fatalf("ended twice, with %v and %v", d.Work.err, d.Err)
				}
				d.Work.done, d.Work.err, d.Work.status = true, d.Err, d.Status
			}
			return
		}
	}
}

// frame puts a frame into the bag.
func (w *world) frame(rank op.Rank, f Frame[*job]) {
	p := &packet{Frame: f, from: rank}
	switch f.Verb {
	case Eager:
		p.payload = f.Send.Data
	case Part:
		p.payload = f.Send.Work.buf[f.Offset : f.Offset+f.Length]
		if f.Send.Work.done {
			w.t.Fatal("memory of a send that is over is read")
		}
	}
	w.bag = append(w.bag, p)
}

func (w *world) writes(j *job) {
	if j.done {
		w.t.Fatal("memory of a receive that is over is written")
	}
}

// revoke takes the memory of a job back from the frames that use it.
func (w *world) revoke(rank op.Rank, j *job, fx *Effects[*job]) {
	core := w.cores[rank]
	w.bag = slices.DeleteFunc(w.bag, func(p *packet) bool {
		if p.Verb != Part || p.Send.Work != j || p.landing {
			return false
		}
		core.Released(p.Send, p.Rail, p.Length, errors.New("revoked"), fx)
		return true
	})
	for _, p := range w.bag {
		if p.landing && !p.revoked && p.place.Recv != nil && p.place.Recv.Work == j {
			p.revoked = true
			core.Torn(p.place.Recv, p.place.Ref, true, fx)
		}
	}
}

// step lets something happen to one frame; false: there is none.
func (w *world) step() bool {
	w.t.Helper()
	if len(w.bag) == 0 {
		return false
	}
	i := w.rng.IntN(len(w.bag))
	p := w.bag[i]
	if !p.landing {
		w.land(p)
		return true
	}
	core := w.cores[p.To]
	var fx Effects[*job]
	if w.rng.IntN(100) < w.tears && !p.revoked {
		p.landing = false // it stays in the bag
		switch {
		case p.place.Recv != nil:
			core.Torn(p.place.Recv, p.place.Ref, false, &fx)
		case p.place.Message != nil:
			core.TornHeld(p.place.Message, &fx)
		}
		w.carry(p.To, &fx)
		return true
	}
	w.bag = slices.Delete(w.bag, i, i+1)
	switch {
	case p.revoked:
	case p.place.Recv != nil:
		w.writes(p.place.Recv.Work)
		copy(p.dst, p.payload)
		core.Arrived(p.place.Recv, p.place.Ref, &fx)
	case p.place.Message != nil:
		copy(p.dst, p.payload)
		core.ArrivedHeld(p.place.Message, &fx)
	}
	w.carry(p.To, &fx)
	if p.Verb == Part {
		var released Effects[*job]
		w.cores[p.from].Released(p.Send, p.Rail, p.Length, nil, &released)
		w.carry(p.from, &released)
	}
	return true
}

// land brings a frame to its core.
func (w *world) land(p *packet) {
	w.t.Helper()
	core := w.cores[p.To]
	var fx Effects[*job]
	var err error
	switch p.Verb {
	case Eager:
		p.place, err = core.Eager(p.from, p.Number, p.Envelope, p.Length, &fx)
	case Part:
		p.place, err = core.Part(p.from, p.Number, p.Offset, p.Length)
	case Ask:
		err = core.Asked(p.from, p.Number, p.Envelope, &fx)
	case Cancel:
		err = core.Canceled(p.from, p.Number, &fx)
	case Refuse:
		err = core.Refused(p.from, p.Number, p.Envelope, &fx)
	case Drop:
		err = core.Dropped(p.from, p.Number, &fx)
	case Grant, Credit:
		if err = core.Credited(p.from, p.Credit); err == nil && p.Verb == Grant {
			err = core.Granted(p.from, p.Number, &fx)
		}
	}
	if err != nil {
		w.t.Fatalf("%d %+v: %v", p.Verb, p.Frame, err)
	}
	switch {
	case p.Verb != Eager && p.Verb != Part:
		w.bag = slices.DeleteFunc(w.bag, func(x *packet) bool { return x == p })
	case p.place.Recv != nil:
		p.landing, p.dst = true, p.place.Recv.Work.buf[p.place.Offset:p.place.Offset+p.Length]
	case p.place.Message != nil:
		if p.place.Message.Data.Bytes == nil {
			p.place.Message.Data.Bytes = make([]byte, p.Length)
		}
		p.landing, p.dst = true, p.place.Message.Data.Bytes
	default:
		p.landing = true
	}
	w.carry(p.To, &fx)
}

func (w *world) settle() {
	w.t.Helper()
	for n := 0; w.step(); n++ {
		if n > 10_000_000 {
			w.t.Fatal("no end")
		}
	}
}

// check holds a receive against the message that it must have got.
func (j *job) check(want *job, from op.Rank) error {
	switch {
	case !j.done:
		return errors.New("not over")
	case j.err != nil:
		return j.err
	case j.status.Source != from || int(j.status.Count) != len(want.buf):
		return fmt.Errorf("got %+v, want %d bytes of rank %d", j.status, len(want.buf), from)
	case !slices.Equal(j.buf[:len(want.buf)], want.buf):
		return errors.New("other bytes")
	}
	return nil
}

// idle fails the test if a core remembers anything of a message.
func (w *world) idle(seed uint64) {
	w.t.Helper()
	for rank, c := range w.cores {
		if !c.Idle() || len(c.stray) > 0 {
			w.t.Fatalf("seed %d: rank %d is not idle", seed, rank)
		}
		for from, in := range c.from {
			if in.held != 0 || in.granted != 0 || len(in.pending) > 0 {
				w.t.Fatalf("seed %d: rank %d keeps %d bytes, %d grants of rank %d", seed, rank,
					in.held, in.granted, from)
			}
		}
	}
}
