package p2p

import (
	"errors"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/collective/fault"
	"github.com/polyrail/polyrail/collective/op"
)

// alone is the core of rank 0 with a receive of 100,000 bytes that is matched with message 1 of
// rank 1, and granted; message 2 is eager, and waits.
func alone(t *testing.T) (c *Core[string], r *Recv[string]) {
	t.Helper()
	c = New[string](Config{Size: 3, Rails: 1, EagerBytes: 8 << 10, CreditBytes: 16 << 10,
		WindowBytes: 1 << 20, Granted: 2, Open: 4})
	var fx Effects[string]
	r = &Recv[string]{Work: "recv", From: 1, Room: Envelope{5, op.Uint8, 100_000}}
	if err := c.Recv(r, &fx); err != nil {
		t.Fatal(err)
	}
	if err := c.Asked(1, 1, Envelope{5, op.Uint8, 100_000}, &fx); err != nil {
		t.Fatal(err)
	}
	p, err := c.Eager(1, 2, Envelope{6, op.Uint8, 100}, 100, &fx)
	if err != nil {
		t.Fatal(err)
	}
	p.Message.Data.Bytes = make([]byte, 100)
	c.ArrivedHeld(p.Message, &fx)
	return c, r
}

func TestHostileFramesAreRefusedByRankAndNumber(t *testing.T) {
	bytes := func(n uint64) Envelope { return Envelope{5, op.Uint8, n} }
	var fx Effects[string]
	part := func(number uint64, offset, length int) func(*Core[string]) error {
		return func(c *Core[string]) error { _, err := c.Part(1, number, offset, length); return err }
	}
	eager := func(number uint64, e Envelope, length int) func(*Core[string]) error {
		return func(c *Core[string]) error { _, err := c.Eager(1, number, e, length, &fx); return err }
	}
	ask := func(number uint64, e Envelope) func(*Core[string]) error {
		return func(c *Core[string]) error { return c.Asked(1, number, e, &fx) }
	}
	cases := map[string]func(*Core[string]) error{
		"offset beyond":         part(1, 102_400, 1),
		"end beyond":            part(1, 98_304, 4096),
		"negative offset":       part(1, -4096, 4096),
		"odd offset":            part(1, 1, 4096),
		"odd length":            part(1, 0, 100),
		"no bytes":              part(1, 0, 0),
		"bytes of eager":        part(2, 0, 100),
		"bytes before envelope": part(3, 0, 100),
		"bytes of number 0":     part(0, 0, 100),
		"twice at once": func(c *Core[string]) error {
			if _, err := c.Part(1, 1, 4096, 8192); err != nil {
				return nil
			}
			return part(1, 8192, 4096)(c)
		},
		"empty twice at once": func(c *Core[string]) error {
			if c.Recv(&Recv[string]{Work: "empty", From: 1, Room: bytes(0)}, &fx) != nil ||
				c.Asked(1, 3, bytes(0), &fx) != nil {
				return nil
			}
			if _, err := c.Part(1, 3, 0, 0); err != nil {
				return nil
			}
			return part(3, 0, 0)(c)
		},
		"twice": func(c *Core[string]) error {
			p, err := c.Part(1, 1, 0, 4096)
			if err != nil {
				return nil
			}
			c.Arrived(p.Recv, p.Ref, &fx)
			return part(1, 0, 4096)(c)
		},
		"eager twice":             eager(2, Envelope{6, op.Uint8, 100}, 100),
		"eager as asked":          eager(1, bytes(100_000), 100),
		"eager without number":    eager(0, bytes(1), 1),
		"eager far ahead":         eager(1<<40, bytes(1), 1),
		"eager of another length": eager(3, bytes(8), 4),
		"eager beyond credit":     eager(3, bytes(16_000), 16_000),
		"eager overflows":         eager(3, Envelope{5, op.F64, 1 << 61}, 0),
		"no type":                 eager(3, Envelope{5, 0, 1}, 1),
		"no tag":                  eager(3, Envelope{NoTag, op.Uint8, 1}, 1),
		"any tag":                 ask(3, Envelope{AnyTag, op.Uint8, 1}),
		"asked twice":             ask(2, bytes(100)),
		"asked far ahead":         ask(1<<63, bytes(1)),
		"asks too often": func(c *Core[string]) (err error) {
			for n := uint64(3); n < 1000 && err == nil; n++ {
				err = c.Asked(1, n, bytes(1), &fx)
			}
			return err
		},
		"cancels eager":         func(c *Core[string]) error { return c.Canceled(1, 2, &fx) },
		"cancels far ahead":     func(c *Core[string]) error { return c.Canceled(1, 1<<50, &fx) },
		"cancels number 0":      func(c *Core[string]) error { return c.Canceled(1, 0, &fx) },
		"grants nothing":        func(c *Core[string]) error { return c.Granted(1, 1, &fx) },
		"refuses nothing":       func(c *Core[string]) error { return c.Refused(1, 7, bytes(1), &fx) },
		"drops nothing":         func(c *Core[string]) error { return c.Dropped(1, 0, &fx) },
		"credit that none took": func(c *Core[string]) error { return c.Credited(1, 1) },
	}
	for what, frame := range cases {
		t.Run(what, func(t *testing.T) {
			c, _ := alone(t)
			if err := frame(c); !errors.Is(err, errFrame) || !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("got %v, want a violation by rank 1", err)
			}
		})
	}
}

// What is late after a cancel is no violation.
func TestWhatIsLateIsDropped(t *testing.T) {
	c, r := alone(t)
	var fx Effects[string]
	c.CancelRecv(r, errCancel, &fx)
	if p, err := c.Part(1, 1, 0, 4096); err != nil || p != (Place[string]{}) {
		t.Errorf("bytes of a receive that was given up: %+v, %v", p, err)
	}
	if err := c.Canceled(1, 1, &fx); err != nil {
		t.Error(err)
	}
	if err := c.Canceled(1, 3, &fx); err != nil { // before its envelope
		t.Error(err)
	}
	if err := c.Asked(1, 3, Envelope{5, op.Uint8, 1}, &fx); err != nil {
		t.Error(err)
	}
	if _, err := c.Eager(1, 4, Envelope{5, op.Uint8, 1}, 1, &fx); err != nil {
		t.Error(err)
	}
}

// Leave goes ahead of data: what was sent before it arrives later, and can be received.
func TestADepartureEndsReceivesOnlyWhenNothingIsToCome(t *testing.T) {
	c, _ := alone(t)
	closed := &fault.AbortError{Rank: 1, Code: fault.CodeClosed}
	var fx Effects[string]
	for _, r := range []*Recv[string]{{Work: "own", From: 1}, {Work: "any", From: AnySource},
		{Work: "other", From: 2}} {
		r.Room = Envelope{9, op.Uint8, 10}
		if err := c.Recv(r, &fx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Send("send", 1, Envelope{9, op.Uint8, 10}, nil, []uint32{1}, &fx); err != nil {
		t.Fatal(err)
	}
	ends := func(want string) {
		t.Helper()
		var got []string
		for _, d := range fx.Done {
			if !errors.Is(d.Err, fault.ErrClosed) {
				t.Errorf("%s ended with %v", d.Work, d.Err)
			}
			got = append(got, d.Work)
		}
		fx.Reset()
		if s := strings.Join(got, " "); s != want {
			t.Errorf("ended: %q, want %q", s, want)
		}
	}
	c.Departed(1, 4, closed, &fx)
	ends("send")
	if err := c.Asked(1, 4, Envelope{8, op.Uint8, 10}, &fx); err != nil {
		t.Fatal(err)
	}
	ends("")
	if err := c.Asked(1, 3, Envelope{8, op.Uint8, 10}, &fx); err != nil {
		t.Fatal(err)
	}
	ends("own")
	if err := c.Recv(&Recv[string]{Work: "late", From: 1, Room: Envelope{8, op.Uint8, 10}}, &fx); err != nil {
		t.Errorf("a message that is there: %v", err)
	}
	if err := c.Recv(&Recv[string]{From: 1, Room: Envelope{9, op.Uint8, 10}},
		&fx); !errors.Is(err, fault.ErrClosed) {
		t.Errorf("a message that never comes: %v", err)
	}
	fx.Reset()
	c.Departed(2, 0, closed, &fx)
	if len(fx.Done) != 2 { // in any order
		t.Errorf("%d ended, want those of rank 2 and of any rank", len(fx.Done))
	}
	if err := c.Recv(&Recv[string]{From: AnySource, Room: Envelope{9, op.Uint8, 10}},
		&fx); !errors.Is(err, fault.ErrClosed) {
		t.Errorf("a message of nobody: %v", err)
	}
}

// A message that waited is being copied when its receive, or everything, is given up.
func TestACopyEndsBeforeItsReceive(t *testing.T) {
	for what, end := range map[string]func(c *Core[string], r *Recv[string], fx *Effects[string]){
		"cancel": func(c *Core[string], r *Recv[string], fx *Effects[string]) {
			c.CancelRecv(r, errCancel, fx)
		},
		"break": func(c *Core[string], _ *Recv[string], fx *Effects[string]) { c.Break(errCancel, fx) },
	} {
		t.Run(what, func(t *testing.T) {
			c, _ := alone(t)
			var fx Effects[string]
			r := &Recv[string]{Work: "waited", From: 1, Room: Envelope{6, op.Uint8, 100}}
			if err := c.Recv(r, &fx); err != nil || len(fx.Copies) != 1 {
				t.Fatalf("%d copies, %v", len(fx.Copies), err)
			}
			m := fx.Copies[0].Message
			fx.Reset()
			end(c, r, &fx)
			for _, d := range fx.Done {
				if d.Work == "waited" {
					t.Error("it ended while its memory was written")
				}
			}
			if len(fx.Free) > 0 {
				t.Error("memory that is read was freed")
			}
			fx.Reset()
			c.Copied(m, &fx)
			if len(fx.Done) != 1 || !errors.Is(fx.Done[0].Err, errCancel) || len(fx.Free) != 1 {
				t.Errorf("then it ended as %+v, %d buffers free", fx.Done, len(fx.Free))
			}
		})
	}
}
