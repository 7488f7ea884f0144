package railactors

import (
	"slices"
	"sync/atomic"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/messages/wire"
)

// This file counts what a rail carried of each lane: one atomic addition a frame, in place of that
// to a sum over all of them.

// The counters of a rail: those of lanes by number, of tree lanes, and of messages between two
// ranks.
const (
	maxLanes    = 64 // a lane for each rail, and one for its repair; any beyond share the last
	treeLanes   = maxLanes
	messageLane = treeLanes + maxLanes
)

// trafficOfLanes is the payload that a rail carried in one direction, in bytes.
type trafficOfLanes [messageLane + 1]atomic.Uint64

// add counts a frame of data.
func (t *trafficOfLanes) add(h *wire.Header, bytes int) {
	lane := min(int(h.Lane), maxLanes-1)
	switch {
	case h.Desc.Kind == op.KindSendRecv:
		lane = messageLane
	case h.Group != 0:
		lane += treeLanes
	}
	t[lane].Add(uint64(bytes))
}

// LaneTraffic is what a rail carried of a lane. Frames may go over other rails than that of their
// lane: while it is down, or where another one delivers them sooner.
type LaneTraffic struct {
	Lane                     string // the name of its rail, after "repair:" or "tree:"; or "messages"
	BytesSent, BytesReceived uint64
}

// lanes are those of which a rail carried something. Those of one name are counted together: a rail
// may be named "messages", too.
func (f *Fabric) lanes(r *rail) (all []LaneTraffic) {
	for lane := range r.sent {
		t := LaneTraffic{BytesSent: r.sent[lane].Load(), BytesReceived: r.received[lane].Load()}
		if t.BytesSent+t.BytesReceived == 0 {
			continue
		}
		t.Lane = f.laneName(lane)
		i := slices.IndexFunc(all, func(same LaneTraffic) bool { return same.Lane == t.Lane })
		if i < 0 {
			all = append(all, t)
			continue
		}
		all[i].BytesSent += t.BytesSent
		all[i].BytesReceived += t.BytesReceived
	}
	return all
}

func (f *Fabric) laneName(lane int) string {
	prefix, rails := "", f.Lanes()
	switch {
	case lane == messageLane:
		return "messages"
	case lane >= treeLanes:
		lane, prefix = lane-treeLanes, "tree:"
	case lane >= rails:
		lane, prefix = lane-rails, "repair:"
	}
	if lane >= rails {
		return "(other)"
	}
	return prefix + f.rails[lane].name
}
