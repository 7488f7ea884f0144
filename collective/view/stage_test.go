package view

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// stage is a few cores whose messages arrive at once, in order, unless the test loses them.
type stage struct {
	t      *testing.T
	now    time.Time
	cores  map[string]*Core
	order  []string
	lose   func(from, to string, m Message) bool
	broken func(a, b string) string // why a cannot reach b; "" if it can
	silent func(a, b string) bool   // whether a never hears of its pair with b
	hold   bool                     // barriers do not end by themselves

	entered map[uint64][]string
	formed  map[string]*View // by node
	failed  map[string]error
	gone    []Unregister
	events  []func()
}

func newStage(t *testing.T, nodes ...string) *stage {
	s := &stage{t: t, now: time.Unix(0, 0), cores: map[string]*Core{}, order: nodes,
		entered: map[uint64][]string{}, formed: map[string]*View{}, failed: map[string]error{}}
	for _, node := range nodes {
		s.add(node, 1, "eth0", "eth1")
	}
	s.introduce()
	return s
}

func (s *stage) add(node string, incarnation uint64, rails ...string) {
	s.t.Helper()
	var r []Rail
	for _, name := range rails {
		r = append(r, Rail{name, node + "/" + name})
	}
	c, err := New(node, incarnation, r, Host{Name: "host of " + node}, DefaultTiming())
	if err != nil {
		s.t.Fatal(err)
	}
	s.cores[node] = c
}

// introduce tells everybody about everybody.
func (s *stage) introduce() {
	for _, a := range s.order {
		for _, b := range s.order {
			if s.cores[a] != nil && s.cores[b] != nil && a != b {
				s.step(a, MemberUp{b, s.cores[b].self.Incarnation})
			}
		}
	}
	s.run()
}

func (s *stage) step(node string, e Event) {
	c := s.cores[node]
	if c == nil {
		return
	}
	for _, a := range c.Step(e, s.now) {
		switch a := a.(type) {
		case Send:
			if s.lose == nil || !s.lose(node, a.To, a.Message) {
				s.later(func() { s.step(a.To, Received{node, c.self.Incarnation, a.Message}) })
			}
		case Connect:
			for _, m := range a.View.Members {
				if m.Node != node {
					s.later(func() { s.connect(node, a.View.ID, m.Node) })
				}
			}
		case Barrier:
			s.enter(node, a.View)
		case Unregister:
			s.gone = append(s.gone, a)
		case Formed:
			s.formed[node] = a.View
		case Failed:
			s.failed[node] = a.Err
		}
	}
}

func (s *stage) connect(node string, id uint64, to string) {
	if s.silent != nil && s.silent(node, to) {
		return
	}
	if s.broken != nil {
		if reason := s.broken(node, to); reason != "" {
			s.step(node, Unreachable{id, to, reason})
			return
		}
	}
	s.step(node, Reached{id, to})
}

func (s *stage) enter(node string, v *View) {
	s.entered[v.ID] = append(s.entered[v.ID], node)
	if len(s.entered[v.ID]) == len(v.Members) && !s.hold {
		for _, m := range v.Members {
			s.later(func() { s.step(m.Node, BarrierDone{v.ID, nil}) })
		}
	}
}

func (s *stage) later(f func()) { s.events = append(s.events, f) }

func (s *stage) run() {
	for len(s.events) > 0 {
		f := s.events[0]
		s.events = s.events[1:]
		f()
	}
}

// pass lets time go by, with ticks when they are due.
func (s *stage) pass(d time.Duration) {
	end := s.now.Add(d)
	for {
		s.run()
		next := end
		for _, c := range s.cores {
			if at, ok := c.Wake(); ok && at.Before(next) {
				next = at
			}
		}
		if next.After(s.now) {
			s.now = next
		} else {
			s.now = s.now.Add(time.Millisecond)
		}
		if !s.now.Before(end) {
			s.now = end
			return
		}
		for _, node := range s.order {
			s.step(node, Tick{})
		}
	}
}

func (s *stage) ask(name string, size int, nodes ...string) {
	for _, node := range nodes {
		s.step(node, Ask{Call: 1, Name: name, Size: size, Nonce: uint64(node[0])})
	}
	s.run()
}

// expectView checks that exactly these nodes formed a view, the same, with ranks in this order.
func (s *stage) expectView(nodes ...string) *View {
	s.t.Helper()
	var first *View
	for i, node := range nodes {
		v := s.formed[node]
		if v == nil {
			s.t.Fatalf("%s formed nothing (failed: %v)", node, s.failed)
		}
		if first == nil {
			first = v
		}
		if v.Digest() != first.Digest() || v.Rank(node) != i || len(v.Members) != len(nodes) {
			s.t.Fatalf("%s formed %+v, %s %+v", nodes[0], first, node, v)
		}
	}
	if len(s.formed) != len(nodes) {
		s.t.Fatalf("more nodes formed a view: %v", s.formed)
	}
	return first
}

func (s *stage) expectFailed(node string, words ...string) {
	s.t.Helper()
	err := s.failed[node]
	var ve *fault.ViewError
	if !errors.As(err, &ve) || !errors.Is(err, fault.ErrView) {
		s.t.Fatalf("%s: got %v", node, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.t.Errorf("%s: %q is missing in %q", node, w, err)
		}
	}
}
