package simulate

import (
	"math"
	"time"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/task"
)

// flat is an event of a rank whose lane goes over the ranks.
func (s *simulation) flat(e event) {
	r := int(e.who)
	switch e.kind {
	case began:
		s.begin(r)
	case reaching:
		s.enter(r, e)
	case wired:
		at := s.cluster.Ranks.receive(s.net.processor(r), s.now, e.f.bytes, time.Duration(e.a))
		s.queue.add(event{at: at, kind: arrived, lane: e.lane, who: e.who, f: e.f})
	case arrived:
		s.receive(r, int(e.lane), e.f)
	case folded:
		s.step(r, int(e.lane), task.Event{Kind: task.Reduced, Ref: task.Ref(e.a)})
	case released:
		s.step(r, int(e.lane), task.Event{Kind: task.Released, Ref: task.Ref(e.a)})
	}
}

// begin starts a rank's parts, with the frames that came before.
func (s *simulation) begin(r int) {
	k := &s.ranks[r]
	k.begun = true
	for lane, t := range k.parts {
		if s.trees[lane] != nil {
			s.trees[lane].begin(r)
		} else if t != nil {
			s.step(r, lane, task.Event{Kind: task.Start})
		}
	}
	for _, w := range k.waiting {
		s.receive(r, w.lane, w.f)
	}
	k.waiting = nil
}

// receive is a frame whose bytes have been read.
func (s *simulation) receive(r, lane int, f *frame) {
	if !s.ranks[r].begun {
		s.ranks[r].waiting = append(s.ranks[r].waiting, early{lane, f})
		return
	}
	t := s.ranks[r].parts[lane]
	if f.grant > 0 {
		s.step(r, lane, task.Event{Kind: task.Granted, From: op.Rank(f.from), Limit: f.grant})
		return
	}
	span := s.ranks[r].plan.Lanes[lane].Spans[f.span]
	ref, _, err := t.Place(task.Frame{From: op.Rank(f.from), First: span.First, Count: span.Count,
		Mark: int(f.mark), Step: int(f.step), Bytes: f.bytes})
	if err != nil {
		s.err = err
		return
	}
	if f.ack {
		s.queue.add(event{at: s.now + s.net.back(lane, int(f.from), r), kind: released, lane: int32(lane),
			who: f.from, a: int64(f.ref)})
	}
	s.step(r, lane, task.Event{Kind: task.Arrived, Ref: ref})
}

// step feeds a task and carries out its answer.
func (s *simulation) step(r, lane int, e task.Event) {
	t := s.ranks[r].parts[lane]
	actions, err := t.Step(e, s.actions[:0])
	s.actions = actions
	if err != nil {
		s.err = err
		return
	}
	now := s.now
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case task.Send:
			f := &frame{from: int32(r), span: int32(a.Span), mark: int32(a.Mark), step: int32(a.Step),
				bytes: a.Loc.Len, ref: uint32(a.Ref), ack: !s.eager}
			s.send(r, int(a.To), lane, f)
		case task.Grant:
			s.send(r, int(a.To), lane, &frame{from: int32(r), grant: a.Limit})
		case task.Reduce:
			s.queue.add(event{at: work(s.net.processor(r), now, over(a.Dst.Len*(len(a.Args)-1), s.cluster.Ranks.Fold)),
				kind: folded, lane: int32(lane), who: int32(r), a: int64(a.Ref)})
		case task.Copy:
			s.queue.add(event{at: work(s.net.processor(r), now, over(a.Dst.Len, s.cluster.Ranks.Copy)),
				kind: folded, lane: int32(lane), who: int32(r), a: int64(a.Ref)})
		case task.Resolve:
			s.ended()
		}
	}
}

// send gives a frame to a rank's processor, and then to the link.
func (s *simulation) send(from, to, lane int, f *frame) {
	leaves := s.cluster.Ranks.send(s.net.processor(from), s.now, f.bytes)
	if f.grant == 0 && !f.ack { // the frame was copied
		s.queue.add(event{at: leaves.last, kind: released, lane: int32(lane), who: int32(from), a: int64(f.ref)})
	}
	s.transmit(from, to, lane, f, leaves)
}

// transmit sends a frame within its host, or over a rail.
func (s *simulation) transmit(from, to, lane int, f *frame, leaves leaving) {
	if f.grant == 0 {
		s.result.Frames++
		s.result.Carried += int64(f.bytes)
	}
	if host := s.cluster.host(from); host == s.cluster.host(to) {
		there, coming := s.net.within(host, f.bytes, leaves)
		s.queue.add(event{at: there, kind: wired, lane: int32(lane), who: int32(to), f: f, a: int64(coming)})
		return
	}
	s.leave(to, lane, f, leaves)
}

// leave gives a frame to the link of its lane's rail, or of the next one that is not known to be dead.
func (s *simulation) leave(to, lane int, f *frame, leaves leaving) {
	a, b, rail := s.cluster.host(int(f.from)), s.cluster.host(to), lane
	for s.lost(rail, leaves.last) {
		rail = (rail + 1) % len(s.cluster.Rails)
	}
	f.rail = int32(rail)
	l := &s.cluster.Rails[rail].Link
	leaves = leave(&s.net.out[rail][a], leaves, onWire(f.bytes, l.Rate), l.Burst)
	way := s.net.way(rail, a, b)
	s.queue.add(event{at: leaves.first + way, kind: reaching, lane: int32(lane), who: int32(to), f: f, a: int64(leaves.last + way)})
}

// enter takes a frame from a link. One that is cut on the way goes again once that is noticed.
func (s *simulation) enter(r int, e event) {
	f, rail := e.f, int(e.f.rail)
	l := &s.cluster.Rails[rail].Link
	there, coming := enter(&s.net.in[rail][s.cluster.host(r)], s.now, time.Duration(e.a), onWire(f.bytes, l.Rate), l.Burst)
	if there > s.dead[rail] {
		s.result.Resent++
		again := max(s.now, s.dead[rail]+s.notice(rail))
		s.leave(r, int(e.lane), f, leaving{again, again})
		return
	}
	e.at, e.kind, e.a = there, wired, int64(coming)
	s.queue.add(e)
}

// lost reports whether it is known at a time that a rail is dead. One rail never is.
func (s *simulation) lost(rail int, at time.Duration) bool {
	return s.dead[rail] != math.MaxInt64 && at >= s.dead[rail]+s.notice(rail)
}

func (s *simulation) notice(rail int) time.Duration {
	for _, f := range s.cluster.Faults {
		if f.Rail == rail {
			return f.Notice
		}
	}
	return 0
}
