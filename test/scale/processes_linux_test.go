package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/program"
)

var processes = flag.Int("processes", 0, "form a communicator of this many processes with default timeouts, kill one of them, "+
	"and print what it takes; 0: of 4, without a word")

// memberEnv makes this test's program a member; its value is a memberConfig.
const memberEnv = "POLYRAIL_SCALE_MEMBER"

// memberConfig is what a member is told.
type memberConfig struct {
	Name  string
	Join  []string // none: it is the first
	Ranks int
}

// told is what a member says, a line each.
type told struct {
	Stage string // "started", "formed", "ran", "noticed", "shrunk", "done"
	Addr  string // started: of its gossip
	At    time.Time
}

func TestMain(m *testing.M) {
	program.Live(memberEnv, belong)
	os.Exit(m.Run())
}

// belong is a member's life: it forms, runs every collective, goes on until one member is lost, shrinks,
// runs every collective again and closes.
func belong(c memberConfig) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Bind, cfg.Join, cfg.Nodes = c.Name, "127.0.0.1:0", c.Join, c.Ranks
	cfg.Rails = []polyrail.Rail{{Name: "lo", Protocol: "tcp", Device: "127.0.0.1"}}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	say := func(stage string) { _ = out.Encode(told{Stage: stage, Addr: node.GossipAddr(), At: time.Now()}) }
	say("started")
	comm, err := node.Communicator(ctx, "processes", c.Ranks)
	if err != nil {
		return err
	}
	say("formed")
	if err := every(ctx, comm); err != nil {
		return err
	}
	say("ran")
	for err == nil {
		err = comm.Barrier(ctx)
	}
	if !errors.Is(err, polyrail.ErrRankLost) {
		return err
	}
	say("noticed")
	rest, _, err := comm.Shrink(ctx)
	if err != nil {
		return err
	}
	say("shrunk")
	if rest.Size() != c.Ranks-1 {
		return fmt.Errorf("%d are left of %d", rest.Size(), c.Ranks)
	}
	if err := errors.Join(every(ctx, rest), rest.Close(ctx), node.Close(ctx)); err != nil {
		return err
	}
	say("done")
	return nil
}

func TestProcessesFormOperateLoseOneShrinkAndClose(t *testing.T) {
	n := *processes
	if n == 0 {
		n = 4
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out processes")
	}
	var mu sync.Mutex
	stages := make(map[string][]time.Time)
	reached := func(stage string, count int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(stages[stage]) >= count
		}
	}
	var all sync.WaitGroup
	commands := make([]*exec.Cmd, n)
	news := make(chan string, 8*n)
	spawn := func(i int, join ...string) {
		cmd := exec.Command(os.Args[0])
		var errs strings.Builder
		cmd.Stderr = &errs
		err := program.Tell(cmd, memberEnv, memberConfig{Name: fmt.Sprintf("p%03d", i), Join: join, Ranks: n})
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		program.Limit(cmd, 2*limit) // its own comes first, and says what failed
		commands[i] = cmd
		all.Go(func() {
			for lines := bufio.NewScanner(io.LimitReader(out, 1<<20)); lines.Scan(); {
				var l told
				if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
					t.Errorf("p%03d says %q", i, lines.Text())
					continue
				}
				mu.Lock()
				stages[l.Stage] = append(stages[l.Stage], l.At)
				mu.Unlock()
				news <- l.Addr
			}
			if err := cmd.Wait(); err != nil && i != n/3 {
				t.Errorf("p%03d: %v\n%s", i, err, errs.String())
			}
			news <- ""
		})
	}
	until := func(ok func() bool) {
		for !ok() && !t.Failed() {
			<-news
		}
	}
	spawn(0)
	first := <-news
	began := time.Now()
	for i := 1; i < n; i++ {
		spawn(i, first)
	}
	until(reached("ran", n))
	killed := time.Now()
	if err := commands[n/3].Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	all.Wait()
	if t.Failed() || !reached("done", n-1)() {
		t.Fatalf("not all members have done everything: %v", stages)
	}
	if *processes > 0 {
		last := func(stage string, since time.Time) time.Duration {
			var most time.Duration
			for _, at := range stages[stage] {
				most = max(most, at.Sub(since))
			}
			return most.Round(time.Millisecond)
		}
		fmt.Printf("%d processes: all started after %v, formed after %v, every collective run after %v; one killed: "+
			"all noticed after %v, shrunk after %v, done after %v\n", n, last("started", began), last("formed", began),
			last("ran", began), last("noticed", killed), last("shrunk", killed), last("done", killed))
	}
}
