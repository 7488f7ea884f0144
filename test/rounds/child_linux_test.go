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
	"strings"
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
	operate = "operate" // until an operation fails
	shrink  = "shrink"  // the communicator that failed, and go on with who is left
	measure = "measure" // what it has
	regroup = "regroup" // form the whole communicator, to mix in it
	// WAY AFTER: operations of all kinds until one fails. One member is told when to end them, the
	// others 0s.
	mix = "mix"
)

// report is what a member says, a line each on its standard output. All processes have one clock.
type report struct {
	Kind  string
	Addr  string        // started: of its gossip
	Nodes []string      // formed, shrunk: the members
	At    time.Time     // passed, failed: when the operation ended
	Error string        // failed, refused: how
	Lost  bool          // failed: because a rank was lost
	Left  bool          // refused: because too few are left
	Took  time.Duration // operating: the operation before; formed, shrunk, refused: how long
	Wrong int           // elements of all sums since the last report that said so
	Use   use           // measured
	End   ending        // ended
}

// The kinds of reports, in the order of a member's life.
const (
	started   = "started"
	formed    = "formed"
	operating = "operating" // it calls the operation that is to be hit
	passed    = "passed"    // that operation is over, and went well
	failed    = "failed"    // it, or a later one
	shrunk    = "shrunk"    // and the rest has gone on
	refused   = "refused"   // the others go on without it, it can't without them
	measured  = "measured"
	regrouped = "regrouped"
	ended     = "ended" // a mix
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
func child(c childConfig) error {
	ctx := context.Background()
	cfg := polyrail.DefaultConfig()
	cfg.Balance = polyrail.BalanceStatic // what is tested relies on equal shares
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
		words := strings.Fields(commands.Text())
		switch word := words[0]; word {
		case form:
			err = m.form(doing)
		case operate:
			m.operate(doing)
		case shrink:
			err = m.shrink(doing)
		case measure:
			err = m.measure()
		case regroup:
			if m.comm, err = m.node.Communicator(doing, "mix", len(names)); err == nil {
				m.say(report{Kind: regrouped})
			}
		case mix:
			if err = m.mix(doing, words[1:]); errors.Is(err, errEnough) { // it has closed its node
				cancel()
				return nil
			}
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

// operate sums until a rank is lost. The second sum is the one to be hit: when all have called it,
// none has ended it.
func (m *member) operate(ctx context.Context) {
	var took time.Duration
	for k := 0; ; k++ {
		m.fill(k, len(m.buf))
		if k == 1 {
			m.say(report{Kind: operating, Took: took})
		}
		begin := time.Now()
		err := m.sum(ctx, k, len(m.buf))
		end := time.Now()
		if err != nil {
			m.say(report{Kind: failed, At: end, Error: err.Error(), Lost: errors.Is(err, polyrail.ErrRankLost)})
			return
		}
		if k == 1 {
			m.say(report{Kind: passed, At: end})
		}
		m.check(k, len(m.buf))
		took = end.Sub(begin)
	}
}

// shrink goes on with who is left. Where that is not for this member to do, it is free to form the
// whole again.
func (m *member) shrink(ctx context.Context) error {
	begin := time.Now()
	rest, _, err := m.comm.Shrink(ctx)
	took := time.Since(begin)
	if err != nil {
		if err := m.comm.Close(ctx); err != nil {
			return err
		}
		m.say(report{Kind: refused, Error: err.Error(), Left: errors.Is(err, polyrail.ErrMinority), Took: took})
		return nil
	}
	m.comm = rest
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
			m.fill(k, n)
			if err := m.sum(ctx, k, n); err != nil {
				return err
			}
			m.check(k, n)
		}
	}
	return nil
}

// operand is this rank's, but for the rank's factor: whole numbers, of which the sum is exact.
func operand(k, i int) int { return i&1023 + k%100 }

func (m *member) fill(k, n int) {
	for i := range n {
		m.buf[i] = float32((m.comm.Rank() + 1) * operand(k, i))
	}
}

func (m *member) sum(ctx context.Context, k, n int) error {
	if err := polyrail.AllReduce(ctx, m.comm, m.buf[:n], polyrail.Sum); err != nil {
		return fmt.Errorf("sum %d of %d elements: %w", k, n, err)
	}
	return nil
}

func (m *member) check(k, n int) {
	all := m.comm.Size() * (m.comm.Size() + 1) / 2
	for i := range n {
		if m.buf[i] != float32(all*operand(k, i)) {
			m.wrong++
		}
	}
}

// measure takes the least of goroutines and descriptors over half a second: gossip has a few more
// now and then.
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
