package rotation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/fault"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
)

// childEnv makes this test's program a member; its value is a childConfig.
const childEnv = "POLYRAIL_ROTATION_CHILD"

// childConfig is what a member is told at its start. It works until its standard input ends.
type childConfig struct {
	Name   string
	Join   []string
	TLS    polyrail.TLS
	Gossip string
	Pause  time.Duration // before each operation
}

// report is what a member says, a line each on its standard output: its addresses at its start, and
// what it has seen at its end.
type report struct {
	Gossip     string
	Rails      []string
	Operations int
	Formed     int
	Reconnects []uint64 // by rail
	Failures   []string
	Members    int
}

const (
	ranks    = 3
	elements = 64 << 10
	reformed = 200 * time.Millisecond // communicators are formed so often …
	broken   = 500 * time.Millisecond // … and the connections of a rail broken
	patience = 30 * time.Second       // for what takes a second when nothing is broken
)

// child is a member's life.
func child(c childConfig) error {
	ctx := context.Background()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Host, cfg.Join = c.Name, c.Name, c.Join // no memory is shared: the rails are what is tested
	cfg.TLS, cfg.GossipKeys = c.TLS, c.Gossip
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var rails []*fault.Transport
	for _, name := range []string{"r0", "r1"} {
		t := fault.Wrap(tcp.New(tcp.Options{}), fault.Options{})
		rails = append(rails, t)
		cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: name, Protocol: "tcp", Device: "127.0.0.1", Transport: t})
	}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	first := report{Gossip: node.GossipAddr()}
	for _, r := range node.Rails() {
		first.Rails = append(first.Rails, r.Addr)
	}
	if err := out.Encode(first); err != nil {
		return err
	}
	last := work(ctx, node, rails, c.Pause)
	closing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := node.Close(closing); err != nil {
		last.Failures = append(last.Failures, err.Error())
	}
	return out.Encode(last)
}

// work runs operations of all ranks until standard input ends. The ranks agree on all that they do
// together by what they add up.
func work(ctx context.Context, node *polyrail.Node, rails []*fault.Transport, pause time.Duration) (r report) {
	var enough atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		enough.Store(true)
	}()
	fail := func(what string, err error) {
		r.Failures = append(r.Failures, fmt.Sprintf("%s %d: %v", what, r.Operations, err))
	}
	form := func(name string) *polyrail.Communicator {
		forming, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		comm, err := node.Communicator(forming, name, ranks)
		if err != nil {
			fail("forming "+name+" before operation", err)
			return nil
		}
		r.Formed++
		return comm
	}
	end := func(comm *polyrail.Communicator) {
		if comm == nil {
			return
		}
		closing, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := comm.Close(closing); err != nil {
			fail("end of a communicator at operation", err)
		}
	}
	comm := form("train")
	formed, dropped := time.Now(), time.Now()
	for data := make([]float32, elements); comm != nil && len(r.Failures) == 0; {
		<-time.After(pause)
		r.Members = len(node.Members()) // nobody has left: the operation is still to come
		for i := range data {
			data[i] = 1
		}
		data[0], data[1] = 0, 0
		if enough.Load() {
			data[0] = 1
		}
		if comm.Rank() == 0 && time.Since(formed) > reformed {
			data[1] = 1
		}
		if time.Since(dropped) > broken {
			dropped = time.Now()
			rails[r.Operations%len(rails)].Drop()
		}
		operating, cancel := context.WithTimeout(ctx, patience)
		err := polyrail.AllReduce(operating, comm, data, polyrail.Sum)
		cancel()
		if err != nil {
			fail("operation", err)
			break
		}
		r.Operations++
		for i, v := range data[2:] {
			if v != ranks {
				fail("operation", fmt.Errorf("element %d is %v, want %d", 2+i, v, ranks))
				break
			}
		}
		if data[1] > 0 {
			formed = time.Now()
			end(form(fmt.Sprint("train-", r.Operations)))
		}
		if data[0] > 0 {
			end(comm) // the others may not have the last sum yet
			break
		}
	}
	for _, s := range node.Rails() {
		r.Reconnects = append(r.Reconnects, uint64(s.Reconnects))
	}
	return r
}
