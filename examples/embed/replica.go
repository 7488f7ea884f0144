package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/polyrail/polyrail"
)

// dimensions is the length of the vector, the same in all replicas.
const dimensions = 4

// replica holds one replica's vector and the last average of all replicas' vectors.
type replica struct {
	node *polyrail.Node
	size int // of the group

	mu     sync.Mutex
	vector [dimensions]float32
	last   state
}

// state is what GET /average answers.
type state struct {
	Round   int       `json:"round"` // 0: no average yet
	Average []float32 `json:"average"`
	Error   string    `json:"error,omitempty"` // what broke the last round
}

func newReplica(node *polyrail.Node, size int) *replica {
	return &replica{node: node, size: size}
}

// average computes the average at each tick until ctx ends. When a replica is lost, or a new one takes a
// lost one's place, the group is formed anew.
func (r *replica) average(ctx context.Context, ticks <-chan time.Time) {
	for ctx.Err() == nil {
		err := r.rounds(ctx, ticks)
		if ctx.Err() != nil {
			return
		}
		slog.Warn("the group broke", "err", err)
		r.mu.Lock()
		r.last.Error = err.Error()
		r.mu.Unlock()
		select { // a tick between attempts
		case <-ticks:
		case <-ctx.Done():
		}
	}
}

// rounds forms the group and averages at each tick until something fails.
func (r *replica) rounds(ctx context.Context, ticks <-chan time.Time) error {
	group, err := r.node.Communicator(ctx, "average", r.size)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ticks:
		case <-ctx.Done():
			return ctx.Err() // the node's Close tells the others
		}
		r.mu.Lock()
		sum := r.vector
		r.mu.Unlock()
		// Replicas tick at different times: whoever is first waits for the others here.
		if err := polyrail.AllReduce(ctx, group, sum[:], polyrail.Avg); err != nil {
			return err
		}
		r.mu.Lock()
		r.last = state{Round: r.last.Round + 1, Average: sum[:]}
		r.mu.Unlock()
	}
}

func (r *replica) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /vector", r.putVector)
	mux.HandleFunc("GET /average", r.getAverage)
	return mux
}

func (r *replica) putVector(w http.ResponseWriter, req *http.Request) {
	const maxBody = 1 << 10
	var vector []float32
	err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody)).Decode(&vector)
	if err == nil && len(vector) != dimensions {
		err = fmt.Errorf("%d numbers, want %d", len(vector), dimensions)
	}
	if err != nil {
		http.Error(w, "vector: "+err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vector = [dimensions]float32(vector)
	w.WriteHeader(http.StatusNoContent)
}

func (r *replica) getAverage(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	s := r.last // its slice is never written again
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // an error is the client's having gone
}
