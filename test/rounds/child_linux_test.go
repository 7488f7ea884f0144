package rounds

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/polyrail/polyrail"
)

// childEnv makes this test's program a member; its value is a childConfig.
const childEnv = "POLYRAIL_ROUNDS_CHILD"

// childConfig is what a member is told at its start.
type childConfig struct {
	Name string
	Join []string
}

// What a member is told to do, a line each on its standard input; whose end is the member's.
const (
	form    = "form"    // the whole communicator
	operate = "operate" // until an operation fails; then shrink and go on
	measure = "measure" // what it has
)

// report is what a member says, a line each on its standard output. All processes have one clock.
type report struct {
	Kind  string
	Addr  string        // started: of its gossip
	Nodes []string      // formed, shrunk: the members
	Begin time.Time     // failed: when the operation began
	At    time.Time     // failed: when it ended
	Error string        // failed: how
	Lost  bool          // failed: because a rank was lost
	Took  time.Duration // formed, shrunk: how long
	Wrong int           // elements of all sums since the last report that said so
	Use   use           // measured
}

// The kinds of reports, in the order of a member's life.
const (
	started   = "started"
	formed    = "formed"
	operating = "operating" // it is in the second operation
	failed    = "failed"
	shrunk    = "shrunk" // and the rest has gone on
	measured  = "measured"
)

// use is what a process has of what could grow.
type use struct {
	Goroutines, Descriptors int
	Resident                int64 // bytes; what is garbage has been given back
	Stacks                  string
}

// member is one rank's process.
type member struct {
	node  *polyrail.Node
	comm  *polyrail.Communicator
	buf   []float32
	wrong int
	out   *json.Encoder
}

// child is a member's life.
func child(config string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx := context.Background()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Join, cfg.Logger = c.Name, c.Join, slog.New(slog.DiscardHandler)
	for _, name := range []string{"r0", "r1"} {
		cfg.Rails = append(cfg.Rails, polyrail.Rail{Name: name, Protocol: "tcp", Device: "127.0.0.1"})
	}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	m := &member{node: node, buf: make([]float32, elements), out: json.NewEncoder(os.Stdout)}
	m.say(report{Kind: started, Addr: node.GossipAddr()})
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		doing, cancel := context.WithTimeout(ctx, patience)
		switch word := commands.Text(); word {
		case form:
			err = m.form(doing)
		case operate:
			err = m.operate(doing)
		case measure:
			err = m.measure()
		default:
			err = fmt.Errorf("no such command: %q", word)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	closing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.comm.Close(closing); err != nil {
		return err
	}
	return node.Close(closing)
}

func (m *member) say(r report) {
	r.Wrong, m.wrong = m.wrong, 0
	_ = m.out.Encode(r) // whoever listened is gone: standard input ends too
}

// form waits for all members and sums with them.
func (m *member) form(ctx context.Context) (err error) {
	begin := time.Now()
	if m.comm, err = m.node.Communicator(ctx, "rounds", len(names)); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := m.sums(ctx, 3); err != nil {
		return err
	}
	m.say(report{Kind: formed, Nodes: m.comm.Nodes(), Took: took})
	return nil
}

// operate sums until a rank is lost, and goes on with the others.
func (m *member) operate(ctx context.Context) error {
	r := report{Kind: failed}
	for k := 0; ; k++ {
		if k == 1 { // now all are at it: the first one has ended
			m.say(report{Kind: operating})
		}
		begin, err := m.sum(ctx, k, len(m.buf))
		if err != nil {
			r.Begin, r.At, r.Error, r.Lost = begin, time.Now(), err.Error(), errors.Is(err, polyrail.ErrRankLost)
			break
		}
	}
	m.say(r)
	begin := time.Now()
	rest, _, err := m.comm.Shrink(ctx)
	if err != nil {
		return err
	}
	m.comm = rest
	took := time.Since(begin)
	if err := m.sums(ctx, 3); err != nil {
		return err
	}
	nodes := m.comm.Nodes()
	if err := m.comm.Close(ctx); err != nil {
		return err
	}
	m.say(report{Kind: shrunk, Nodes: nodes, Took: took})
	return nil
}

// sums is so many sums, of sizes that take different ways.
func (m *member) sums(ctx context.Context, times int) error {
	for k := range times {
		for _, n := range []int{1, 1000, len(m.buf)} {
			if _, err := m.sum(ctx, k, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum is one operation and a check of its result; begin is when it was called. Operands are whole numbers, of
// which the sum is exact.
func (m *member) sum(ctx context.Context, k, n int) (begin time.Time, err error) {
	of := func(i int) int { return i&1023 + k%100 }
	for i := range n {
		m.buf[i] = float32((m.comm.Rank() + 1) * of(i))
	}
	begin = time.Now()
	if err := polyrail.AllReduce(ctx, m.comm, m.buf[:n], polyrail.Sum); err != nil {
		return begin, fmt.Errorf("sum %d of %d elements: %w", k, n, err)
	}
	all := m.comm.Size() * (m.comm.Size() + 1) / 2
	for i := range n {
		if m.buf[i] != float32(all*of(i)) {
			m.wrong++
		}
	}
	return begin, nil
}

// measure takes the least of goroutines and descriptors over half a second: gossip has a few more now and then.
func (m *member) measure() error {
	debug.FreeOSMemory()
	u := use{Goroutines: runtime.NumGoroutine()}
	var err error
	if u.Descriptors, err = descriptors(); err != nil {
		return err
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 50 {
		<-look.C
		u.Goroutines = min(u.Goroutines, runtime.NumGoroutine())
		n, err := descriptors()
		if err != nil {
			return err
		}
		u.Descriptors = min(u.Descriptors, n)
	}
	stacks := make([]byte, 1<<20)
	u.Stacks = string(stacks[:runtime.Stack(stacks, true)])
	if u.Resident, err = resident(); err != nil {
		return err
	}
	m.say(report{Kind: measured, Use: u})
	return nil
}

// descriptors counts those that are open, without the one that it looks at them by.
func descriptors() (int, error) {
	list, err := os.ReadDir("/proc/self/fd")
	return len(list) - 1, err
}

// resident is the process's memory, as the kernel counts it.
func resident() (int64, error) {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var size, pages int64
	if _, err := fmt.Fscan(io.LimitReader(f, 256), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}
