package observe

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/polyrail/polyrail/actors/membership"
)

// Limits of live pages.
const (
	maxViewers = 32
	// A frame is sent each frameEvery, and this much after an event at the latest.
	frameEvery = time.Second
	eventDelay = 50 * time.Millisecond
	// askPause is added to the pause between two questions to all other nodes for each of them.
	askPause = 15 * time.Millisecond
)

// hub makes frames while somebody looks, each once for all viewers. A viewer that has not taken a
// frame when the next one comes misses it: so none of them holds more than one.
type hub struct {
	source Source

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	came    chan struct{}      // of capacity 1: a viewer waits for its first frame
	stop    context.CancelFunc // of the goroutine that makes frames; nil: there is none
	group   sync.WaitGroup
}

type viewer struct{ frames chan []byte }

// Cluster is a frame of a live page: this node, and what it knows of the others.
type Cluster struct {
	Self   membership.Status
	Others []Neighbour
	// SilentAfter is when a node that has not answered counts as silent, in seconds.
	SilentAfter float64
}

// askEvery is the pause between two questions to all others.
func askEvery(others int) time.Duration { return frameEvery + time.Duration(others)*askPause }

// silentAfter leaves room for two questions, and for an answer that is late.
func silentAfter(others int) time.Duration { return 2 * (frameEvery + askEvery(others)) }

// join adds a viewer, and begins to make frames for the first one. False: there are too many.
func (h *hub) join() (*viewer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers {
		return nil, false
	}
	v := &viewer{make(chan []byte, 1)}
	if h.viewers == nil {
		h.viewers = make(map[*viewer]struct{})
	}
	h.viewers[v] = struct{}{}
	if h.came == nil {
		h.came = make(chan struct{}, 1)
	}
	select {
	case h.came <- struct{}{}:
	default:
	}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		came := h.came
		h.group.Go(func() { h.run(ctx, came) })
	}
	return v, true
}

// leave takes a viewer out, and stops making frames after the last one.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	if len(h.viewers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// run makes frames until ctx ends.
func (h *hub) run(ctx context.Context, came <-chan struct{}) {
	events, cancel := h.source.Subscribe()
	defer cancel()
	h.source.AskOthers()
	next := time.NewTimer(0)
	defer next.Stop()
	ask := time.NewTimer(frameEvery)
	defer ask.Stop()
	soon := false // a frame is due because of an event
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
			}
			if !soon {
				soon = true
				next.Reset(eventDelay)
			}
		case <-came:
			if !soon {
				soon = true
				next.Reset(eventDelay)
			}
		case <-ask.C:
			h.source.AskOthers()
			ask.Reset(askEvery(len(h.source.Others())))
		case <-next.C:
			soon = false
			next.Reset(frameEvery)
			h.send(h.make(ctx))
		}
	}
}

// make takes a snapshot.
func (h *hub) make(ctx context.Context) []byte {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	others := h.source.Others()
	f := Cluster{Self: h.source.Status(ctx, membership.Full), SilentAfter: silentAfter(len(others)).Seconds()}
	for _, o := range others {
		f.Others = append(f.Others, neighbourOf(&o, f.Self.Time))
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil // a number that JSON has no form for: the next frame may be well
	}
	return text
}

// send hands a frame to all viewers, in place of one that is waiting.
func (h *hub) send(text []byte) {
	if text == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.viewers {
		select {
		case <-v.frames:
		default:
		}
		v.frames <- text // has room: nobody else fills it
	}
}

// live answers with frames as server-sent events, until the viewer goes or the node closes.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	v, ok := s.hub.join()
	if !ok {
		http.Error(w, "too many look already", http.StatusServiceUnavailable)
		return
	}
	defer s.hub.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect frames
	c := http.NewResponseController(w)
	if c.Flush() != nil { // the browser is to know that it is connected
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.source.Closing():
			return
		case text := <-v.frames:
			for _, part := range [][]byte{[]byte("data: "), text, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
			if c.Flush() != nil {
				return
			}
		}
	}
}
