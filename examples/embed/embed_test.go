package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
)

// service is a replica behind a real HTTP server, with a ticker in the test's hand.
type service struct {
	*httptest.Server
	ticks chan time.Time
}

// startReplicas runs n replicas that meet over loopback until the test ends.
func startReplicas(t *testing.T, n int) []service {
	t.Helper()
	var services []service
	var seed []string
	for i := range n {
		cfg := polyrail.DefaultConfig()
		cfg.Name = fmt.Sprintf("replica-%d", i)
		cfg.Join = seed
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
		cfg.Rails = []polyrail.Rail{
			{Name: "r0", Protocol: "tcp", Device: "127.0.0.1"},
			{Name: "r1", Protocol: "tcp", Device: "127.0.0.1"},
		}
		node, err := polyrail.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		seed = []string{node.GossipAddr()}
		r := newReplica(node, n)
		s := service{httptest.NewServer(r.handler()), make(chan time.Time)}
		services = append(services, s)
		ctx, cancel := context.WithCancel(context.Background())
		var loop sync.WaitGroup
		loop.Go(func() { r.average(ctx, s.ticks) })
		t.Cleanup(func() {
			cancel()
			loop.Wait()
			s.Close()
			bounded, done := context.WithTimeout(context.Background(), closeTimeout)
			defer done()
			_ = node.Close(bounded) // the others may have gone before
		})
	}
	return services
}

func (s service) put(t *testing.T, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/vector", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (s service) average(t *testing.T) (a state) {
	t.Helper()
	resp, err := s.Client().Get(s.URL + "/average")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// tick starts a round on all; a replica takes its tick only when its round before is done.
func tick(t *testing.T, services []service) {
	t.Helper()
	for _, s := range services {
		select {
		case s.ticks <- time.Time{}:
		case <-t.Context().Done():
			t.Fatal("a replica takes no tick")
		}
	}
}

func TestReplicasAverageTheirVectors(t *testing.T) {
	services := startReplicas(t, 3)
	for i, s := range services {
		if code := s.put(t, fmt.Sprintf("[%d, 3, 6, 0.5]", 3*i)); code != http.StatusNoContent {
			t.Fatalf("PUT /vector answers %d", code)
		}
	}
	tick(t, services)
	tick(t, services) // taken: the first round is done
	want := []float32{3, 3, 6, 0.5}
	for i, s := range services {
		if a := s.average(t); a.Round < 1 || a.Error != "" || !slices.Equal(a.Average, want) {
			t.Errorf("replica %d: %+v, want %v", i, a, want)
		}
	}
}

func TestWrongVectorsAreRefused(t *testing.T) {
	s := service{Server: httptest.NewServer(newReplica(nil, 1).handler())}
	defer s.Close()
	for _, body := range []string{"", "[1, 2]", `"text"`, "[" + strings.Repeat("1,", 1000) + "1]"} {
		if code := s.put(t, body); code != http.StatusBadRequest {
			t.Errorf("PUT /vector %.20q answers %d", body, code)
		}
	}
	if a := s.average(t); a.Round != 0 || a.Average != nil {
		t.Errorf("an average without a round: %+v", a)
	}
}
