//go:build linux

package netlab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/program"
)

const (
	rails = 2
	rate  = 250 * Mbit
	// patience bounds what takes a few seconds when nothing is broken.
	patience = 90 * time.Second
)

// node is the program under test; TestMain's temporary directory holds it.
var node string

func TestMain(m *testing.M) {
	program.Live(childEnv, child)
	program.Live(pairsEnv, pairsChild)
	program.Live(captureEnv, captureChild)
	program.Live(treeJobsEnv, treeJobsChild)
	dir, err := os.MkdirTemp("", "polyrail-netlab-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	node = filepath.Join(dir, "node")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// needBench skips a test where it cannot run, and builds the program otherwise.
func needBench(t *testing.T, hosts int) *Bed {
	t.Helper()
	return needProgram(t, Config{Hosts: hosts, Rails: []Rate{rate, rate}, Management: true})
}

// needProgram is needBench on a bed of any shape.
func needProgram(t *testing.T, c Config) *Bed {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out whole programs on a bed")
	}
	b := Up(t, c)
	if _, err := os.Stat(node); err == nil {
		return b
	}
	if out, err := exec.Command("go", "build", "-o", node, "github.com/polyrail/polyrail/cmd/node").CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/node: %v\n%s", err, out)
	}
	return b
}

// process is the program on one host.
type process struct {
	*exec.Cmd
	name      string
	out, errs bytes.Buffer
	ended     chan struct{} // closed when it has; err is set then
	err       error
}

// nameOf is the node's name on a host.
func nameOf(host int) string { return fmt.Sprintf("host-%d", host) }

// bench starts "node bench" on every host. Gossip runs on the management NIC.
func bench(t *testing.T, b *Bed, args ...string) []*process {
	t.Helper()
	var all []*process
	for host := 1; host <= b.cfg.Hosts; host++ {
		p := &process{name: nameOf(host), ended: make(chan struct{})}
		own := []string{"bench", "--name", p.name, "--ranks", fmt.Sprint(b.cfg.Hosts), "--json",
			"--bind", b.Addr(host, 0) + ":7946", "--join", b.Addr(1, 0) + ":7946"}
		for r := 1; r <= rails; r++ {
			own = append(own, "--rail", NIC(r)+"=tcp:"+NIC(r))
		}
		p.Cmd = b.Command(host, node, append(own, args...)...)
		p.Stdout, p.Stderr = &p.out, &p.errs
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { p.err = p.Wait(); close(p.ended) }()
		all = append(all, p)
	}
	return all
}

// await waits for a process to end. One that does not says what it is at.
func (p *process) await(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		program.Limit(p.Cmd, 0)
		<-p.ended
		t.Fatalf("%s did not end within %v:\n%s", p.name, limit, p.errs.String())
	}
}

// result is what bench prints of one size.
type result struct {
	Bytes, Iterations, Ranks int
	Errors                   int
	P50                      float64            `json:"p50_us"`
	Shares                   map[string]float64 // rail → fraction of the bytes
}

// results reads what rank 0 printed.
func results(t *testing.T, all []*process) (found []result) {
	t.Helper()
	for _, p := range all {
		lines := bufio.NewScanner(bytes.NewReader(p.out.Bytes()))
		for lines.Scan() {
			var r result
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s printed %q: %v", p.name, lines.Text(), err)
			}
			found = append(found, r)
		}
	}
	return found
}

// half reports whether a rail's share is about a half.
func half(share float64) bool { return share > 0.4 && share < 0.6 }

func TestBenchUsesBothRailsAndOnlyThem(t *testing.T) {
	sizes := []int{1 << 20, 8 << 20}
	for _, n := range []int{2, 3, 4, 6} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			b := needBench(t, n)
			all := bench(t, b, "--check", "--sizes", "1MiB,8MiB", "--min-time", "300ms", "--rank-timeout", "20s", "--balance", "static",
				"--pin-frames", "on") // on a busy machine frames stray by more than a tenth
			for _, p := range all {
				p.await(t, patience)
				if p.err != nil {
					t.Errorf("%s: %v\n%s", p.name, p.err, p.errs.String())
				}
			}
			got := results(t, all)
			if len(got) != len(sizes) {
				t.Fatalf("%d results, want %d: %+v", len(got), len(sizes), got)
			}
			var least float64 // bytes that a rank must have sent, by the theory of allreduce
			for i, r := range got {
				if r.Bytes != sizes[i] || r.Ranks != n || r.Errors != 0 || r.Iterations == 0 || r.P50 <= 0 {
					t.Errorf("result %+v, want %d bytes, %d ranks and no errors", r, sizes[i], n)
				}
				if len(r.Shares) != rails || !half(r.Shares["rail1"]) || !half(r.Shares["rail2"]) {
					t.Errorf("%d bytes: shares %v, want about a half each", r.Bytes, r.Shares)
				}
				least += 2 * float64(n-1) / float64(n) * float64(r.Iterations) * float64(r.Bytes)
			}
			requireTraffic(t, b, least)
		})
	}
}

// requireTraffic compares the NICs' own counters with what bench said.
func requireTraffic(t *testing.T, b *Bed, least float64) {
	t.Helper()
	for host := 1; host <= b.cfg.Hosts; host++ {
		management := float64(b.Traffic(host, 0).Sent)
		first, second := float64(b.Traffic(host, 1).Sent), float64(b.Traffic(host, 2).Sent)
		if sum := first + second; sum < least || !half(first/sum) {
			t.Errorf("host %d sent %.0f and %.0f bytes on its rails, want %.0f or more, about a half on each", host, first, second, least)
		}
		if management > least/20 {
			t.Errorf("host %d sent %.0f bytes on its management NIC: that is more than gossip", host, management)
		}
	}
}

// Every way for a process to go in mid-operation: the others must say who it was, and soon.
func TestLostProcessIsNamedByAllOthers(t *testing.T) {
	const hosts = 3
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		victim int
	}{
		{"killed first host", syscall.SIGKILL, 1},
		{"killed last host", syscall.SIGKILL, hosts},
		{"stopped first host", syscall.SIGSTOP, 1},
		{"stopped last host", syscall.SIGSTOP, hosts},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := needBench(t, hosts)
			all := bench(t, b, "--sizes", "64MiB", "--min-time", "10m", "--balance", "static")
			awaitTraffic(t, b, all)
			if err := all[c.victim-1].Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			struck := time.Now()
			for i, p := range all {
				if i == c.victim-1 {
					continue
				}
				// The rank timeout is 2 s; the rest is for a slow machine and a clean exit.
				p.await(t, 30*time.Second)
				t.Logf("%s ended %v after the signal", p.name, time.Since(struck).Round(10*time.Millisecond))
				if p.err == nil {
					t.Errorf("%s ended as if nothing had happened", p.name)
				}
				if !strings.Contains(p.errs.String(), nameOf(c.victim)) {
					t.Errorf("%s doesn't name %s:\n%s", p.name, nameOf(c.victim), p.errs.String())
				}
			}
		})
	}
}

// awaitTraffic waits until operations of 64 MiB are under way: each rail has carried a part of the
// first.
func awaitTraffic(t *testing.T, b *Bed, all []*process) {
	t.Helper()
	const under = 4 << 20
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); b.Traffic(1, 1).Sent < under || b.Traffic(1, 2).Sent < under; {
		for _, p := range all {
			select {
			case <-p.ended:
				t.Fatalf("%s ended early: %v\n%s", p.name, p.err, p.errs.String())
			default:
			}
		}
		if time.Now().After(deadline) {
			for _, p := range all {
				program.Limit(p.Cmd, 0)
				<-p.ended
				t.Logf("%s is at:\n%s", p.name, p.errs.String())
			}
			t.Fatalf("after %v host 1 has sent %d and %d bytes on its rails", patience,
				b.Traffic(1, 1).Sent, b.Traffic(1, 2).Sent)
		}
		<-poll.C
	}
}
