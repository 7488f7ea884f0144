package p2p

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// Equal tags from one sender: the k-th receive gets the k-th message, whatever the frames do.
func TestMessagesArriveInOrderWhateverTheFramesDo(t *testing.T) {
	for seed := range uint64(100) {
		const n = 3
		w := newWorld(t, seed, n, nil)
		w.tears = 10
		sends, recvs := make(map[[2]op.Rank][]*job), make(map[[2]op.Rank][]*job)
		for k := range 120 {
			pair := [2]op.Rank{op.Rank(w.rng.IntN(n)), op.Rank(w.rng.IntN(n))}
			label := len(sends[pair])
			sizes := []int{0, 1, 300, 5000, 8 << 10, 40_000, 200_001}
			size := sizes[(int(pair[0])*3+int(pair[1])*5+label*w.rng.IntN(7))%len(sizes)]
			if k%2 == 0 {
				sends[pair] = append(sends[pair], w.send(pair[0], pair[1], 5, pattern(pair[0], label, size)))
			} else {
				recvs[pair] = append(recvs[pair], w.recv(pair[1], pair[0], 5, 200_001))
			}
			for range w.rng.IntN(6) {
				w.step()
			}
		}
		for pair, s := range sends { // each send has its receive, and the reverse
			for len(recvs[pair]) < len(s) {
				recvs[pair] = append(recvs[pair], w.recv(pair[1], pair[0], 5, 200_001))
			}
		}
		for pair, r := range recvs {
			for len(sends[pair]) < len(r) {
				sends[pair] = append(sends[pair],
					w.send(pair[0], pair[1], 5, pattern(pair[0], len(sends[pair]), 77)))
			}
		}
		w.settle()
		for pair := range sends {
			for k, s := range sends[pair] {
				if !s.done || s.err != nil {
					t.Fatalf("seed %d: send %d of %v: done %v, %v", seed, k, pair, s.done, s.err)
				}
				if err := recvs[pair][k].check(s, pair[0]); err != nil {
					t.Fatalf("seed %d: receive %d of %v: %v", seed, k, pair, err)
				}
			}
		}
		w.idle(seed)
	}
}

// Cancels at any moment, of either side: everything ends, nothing is torn, and what was not
// cancelled at either end arrives whole.
func TestCancelsAtAnyMomentLeaveNothingBehind(t *testing.T) {
	cancels, lost := 0, 0
	for seed := range uint64(200) {
		const n = 3
		w := newWorld(t, seed, n, nil)
		w.tears = 10
		var jobs []*job
		label := 0
		for range 100 {
			from, to := op.Rank(w.rng.IntN(n)), op.Rank(w.rng.IntN(n))
			switch w.rng.IntN(5) {
			case 0, 1:
				label++
				jobs = append(jobs, w.send(from, to, Tag(label),
					pattern(from, label, []int{0, 10, 6000, 70_000, 150_000}[w.rng.IntN(5)])))
			case 2, 3:
				jobs = append(jobs, w.recv(to, []op.Rank{from, AnySource}[w.rng.IntN(2)], AnyTag, 150_000))
			default:
				if len(jobs) > 0 {
					if j := jobs[w.rng.IntN(len(jobs))]; !j.done {
						cancels++
						w.cancel(j)
					}
				}
			}
			for range w.rng.IntN(5) {
				w.step()
			}
		}
		w.settle()
		for _, j := range jobs {
			if !j.done { // what found no partner
				w.cancel(j)
			}
		}
		w.settle()
		for _, j := range jobs {
			switch {
			case !j.done:
				t.Fatalf("seed %d: not over: send %v, %d bytes, cancelled %v", seed, j.send != nil,
					len(j.buf), j.cancelled)
			case j.cancelled && (j.err == nil || j.send != nil && !errors.Is(j.err, errCancel)):
				t.Fatalf("seed %d: cancelled, and ended with %v", seed, j.err)
			case j.err != nil && !j.cancelled:
				lost++ // the other end was cancelled
			case j.recv != nil && j.err == nil:
				got := j.buf[:j.status.Count]
				if !slices.Equal(got, pattern(j.status.Source, int(j.status.Tag), len(got))) {
					t.Fatalf("seed %d: other bytes", seed)
				}
			}
		}
		for rank := range op.Rank(n) { // what nobody received waits still
			for {
				j := w.recv(rank, AnySource, AnyTag, 150_000)
				w.settle()
				if !j.done {
					w.cancel(j)
					break
				}
			}
		}
		w.idle(seed)
	}
	if cancels < 500 || lost < 5 {
		t.Errorf("%d cancels, of which %d were felt at the other end: the test shows little", cancels, lost)
	}
}

// A message of another type, of more bytes than the receive has, or of fewer than it must have: the
// receive ends with an error that names both, and so does the send, if its bytes had not gone yet.
func TestWhatDoesNotFitEndsAtBothEnds(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(t, seed, 2, nil)
		w.tears = 10
		var sends, recvs []*job
		for tag := range Tag(30) {
			size := []int{0, 1, 300, 6000, 8 << 10, 50_000, 90_000}[w.rng.IntN(7)]
			room := Envelope{tag, []op.DType{op.Uint8, op.Uint8, op.Int8}[w.rng.IntN(3)],
				uint64(max(0, size+w.rng.IntN(3)-1))}
			recv := func() { recvs = append(recvs, w.recvOf(1, 0, room, w.rng.IntN(2) == 0)) }
			early := w.rng.IntN(2) == 0
			if early {
				recv()
			}
			sends = append(sends, w.send(0, 1, tag, pattern(0, int(tag), size)))
			for range w.rng.IntN(10) {
				w.step()
			}
			if !early {
				recv()
			}
		}
		w.settle()
		for k, s := range sends {
			r, sent := recvs[k], s.send.Envelope
			room, exact := r.recv.Room, r.recv.Exact
			if sent.Type == room.Type && sent.Count <= room.Count && (!exact || sent.Count == room.Count) {
				if err := cmp.Or(r.check(s, 0), s.err); err != nil {
					t.Fatalf("seed %d: %+v in %+v, exact %v: %v", seed, sent, room, exact, err)
				}
				continue
			}
			var atSend, atRecv *fault.MismatchError
			if !s.done || !r.done || !errors.As(r.err, &atRecv) || atRecv.Rank != 0 ||
				!strings.HasPrefix(atRecv.Mine, "recv") || !strings.HasPrefix(atRecv.Theirs, "send") {
				t.Fatalf("seed %d: %+v in %+v, exact %v: %v", seed, sent, room, exact, r.err)
			}
			eager := s.send.Data != nil
			if eager != (s.err == nil) || !eager && (!errors.As(s.err, &atSend) || atSend.Rank != 1 ||
				!strings.HasPrefix(atSend.Mine, "send") || !strings.HasPrefix(atSend.Theirs, "recv")) {
				t.Fatalf("seed %d: %+v in %+v, eager %v: %v", seed, sent, room, eager, s.err)
			}
		}
		w.idle(seed)
	}
}

// A break at any moment ends everything, once nobody uses the memory.
func TestABreakEndsEverything(t *testing.T) {
	cause := errors.New("rank 7 is lost")
	for seed := range uint64(100) {
		w := newWorld(t, seed, 2, nil)
		w.tears = 10
		var jobs []*job
		for k := range 40 {
			jobs = append(jobs, w.send(op.Rank(k%2), op.Rank(1-k%2), 1, make([]byte, w.rng.IntN(200_000))),
				w.recv(op.Rank(w.rng.IntN(2)), AnySource, AnyTag, 200_000))
			for range w.rng.IntN(20) {
				w.step()
			}
		}
		for rank, c := range w.cores {
			var fx Effects[*job]
			c.Break(cause, &fx)
			w.carry(op.Rank(rank), &fx)
		}
		w.settle()
		for _, j := range jobs {
			if !j.done || j.err != nil && !errors.Is(j.err, cause) {
				t.Fatalf("seed %d: done %v, %v", seed, j.done, j.err)
			}
		}
		if j := w.send(0, 1, 1, nil); !errors.Is(j.err, cause) {
			t.Fatalf("a later send: %v", j.err)
		}
		if j := w.recv(0, 1, 1, 1); !errors.Is(j.err, cause) {
			t.Fatalf("a later receive: %v", j.err)
		}
	}
}

// A rail that holds its frames back for long: the others take over what is planned for it.
func TestARailThatRunsDryHelpsOut(t *testing.T) {
	w := newWorld(t, 1, 2, func(c *Config) { c.WindowBytes = 512 << 10 })
	s := w.send(0, 1, 1, pattern(0, 1, 8<<20))
	r := w.recv(1, 0, 1, 8<<20)
	carried := make(map[int]int)
	for stalled := true; stalled; {
		stalled = false
		for _, p := range slices.Clone(w.bag) {
			if p.Verb == Part && p.Rail == 0 {
				continue
			}
			stalled = true
			w.bag = slices.DeleteFunc(w.bag, func(x *packet) bool { return x == p })
			rest := w.bag
			w.bag = []*packet{p}
			for slices.Contains(w.bag, p) {
				if i := slices.Index(w.bag, p); i > 0 {
					w.bag[0], w.bag[i] = w.bag[i], w.bag[0]
				}
				one := w.bag[1:]
				w.bag = w.bag[:1:1]
				w.step()
				w.bag = append(w.bag, one...)
			}
			w.bag = append(rest, w.bag...)
			carried[p.Rail] += p.Length
			break
		}
	}
	if carried[1] > 0 || carried[2] < 7<<20 || s.done {
		t.Errorf("rails carried %v beside a stalled one", carried)
	}
	w.settle()
	if err := r.check(s, 0); err != nil {
		t.Error(err)
	}
}
