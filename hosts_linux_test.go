package polyrail_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/test/testbed"
)

// onHosts runs f on nodes over loopback that are told which hosts they are on, and closes them.
func onHosts(t *testing.T, hosts string, adapt func(*Config), f func(b *bed)) {
	t.Helper()
	names := strings.Fields(hosts)
	b := start(t, testbed.Options{Nodes: len(names), Rails: 2, Over: testbed.Loopback, Gossip: testbed.Loopback,
		Balance: BalanceMeasured, Adapt: func(c *Config) {
			var i int
			if _, err := fmt.Sscanf(c.Name, "node%d", &i); err != nil {
				t.Fatal(err)
			}
			c.Host = names[i]
			if adapt != nil {
				adapt(c)
			}
		}})
	defer b.close()
	f(b)
}

// received is what a node's rails and its memory have brought.
func received(t *testing.T, n *Node) (rails, memory uint64) {
	t.Helper()
	for _, r := range n.Rails() {
		rails += r.BytesReceived
	}
	s, _ := n.SharedMemory()
	return rails, s.BytesReceived
}

// sums runs allreduces of many sizes, and checks them.
func (b *bed) sums(comms []*Communicator) {
	b.t.Helper()
	b.each(func(i int) error {
		for _, size := range []int{1, 1000, 5000, 20_000, 100_000, 1_000_000} {
			buf := operand(i, size)
			if err := AllReduce(b.t.Context(), comms[i], buf, Sum); err != nil {
				return err
			}
			if err := checkSum(buf, comms[i].Size()); err != nil {
				return fmt.Errorf("%d elements: %w", size, err)
			}
		}
		return nil
	})
}

func TestRanksOfAHostExchangeDataThroughMemory(t *testing.T) {
	onHosts(t, "x x x x", nil, func(b *bed) {
		comms := b.form("train")
		b.sums(comms)
		for _, n := range b.Nodes {
			if rails, memory := received(t, n); rails != 0 || memory < 6_000_000 {
				t.Errorf("the rails brought %d bytes, memory %d", rails, memory)
			}
		}
		if h := comms[0].Hosts(); len(h) != 1 || !h[0].SharedMemory || h[0].Name != "x" {
			t.Errorf("hosts %+v", h)
		}
	})
}

func TestHostsAreAgreedOnWithTheView(t *testing.T) {
	for hosts, want := range map[string]string{
		"x x y y": "[{x [0 1] true} {y [2 3] true}]",
		"x y x y": "[{x [0 2] true} {y [1 3] true}]",
		"x y y z": "[{x [0] false} {y [1 2] true} {z [3] false}]",
	} {
		t.Run(hosts, func(t *testing.T) {
			onHosts(t, hosts, nil, func(b *bed) {
				comms := b.form("train")
				b.sums(comms)
				names := strings.Fields(hosts)
				b.each(func(i int) error {
					if got := fmt.Sprint(comms[i].Hosts()); got != want {
						return fmt.Errorf("hosts are %s, want %s", got, want)
					}
					here, err := comms[i].SplitHost(b.t.Context())
					if err != nil {
						return err
					}
					var mates []string
					for j, name := range names {
						if name == names[i] {
							mates = append(mates, testbed.NodeName(j))
						}
					}
					if !slices.Equal(here.Nodes(), mates) {
						return fmt.Errorf("on the host are %v, want %v", here.Nodes(), mates)
					}
					buf := []int64{1}
					if err := AllReduce(b.t.Context(), here, buf, Sum); err != nil || buf[0] != int64(len(mates)) {
						return fmt.Errorf("sum %d, %w", buf[0], err)
					}
					return nil
				})
				for i, n := range b.Nodes {
					shared := strings.Count(hosts, names[i]) > 1
					if rails, memory := received(t, n); rails == 0 || (memory > 0) != shared {
						t.Errorf("%s: the rails brought %d bytes, memory %d", n.Name(), rails, memory)
					}
				}
			})
		})
	}
}

func TestSharedMemoryCanBeTurnedOffByAnyNode(t *testing.T) {
	off := func(c *Config) { c.SharedMemory = c.Name != testbed.NodeName(1) }
	onHosts(t, "x x x", off, func(b *bed) {
		comms := b.form("train")
		b.sums(comms)
		for i, n := range b.Nodes {
			rails, memory := received(t, n)
			if _, on := n.SharedMemory(); on == (i == 1) || rails == 0 || (memory > 0) == (i == 1) {
				t.Errorf("%s: the rails brought %d bytes, memory %d", n.Name(), rails, memory)
			}
		}
	})
}

func TestTheFreeOrderOfSumsFindsAlgorithmsInMemoryToo(t *testing.T) {
	onHosts(t, "x x x", func(c *Config) { c.Order = OrderFree }, func(b *bed) {
		comms := b.form("train")
		b.sums(comms)
		report, err := comms[0].Balance(b.t.Context())
		if err != nil || report.Static || len(report.Classes) == 0 {
			t.Errorf("nothing is measured: %+v, %v", report, err)
		}
	})
}

func TestWrongHostSettingsAreNamed(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Rails = []Rail{{Name: "shm", Protocol: "tcp", Device: "127.0.0.1"}}
	cfg.Host = strings.Repeat("h", 300)
	cfg.SharedMemoryRing, cfg.SharedMemoryLimit = 100_000, 1
	err := cfg.Validate()
	for _, want := range []string{`rail "shm"`, "host ", "ring of 100000 bytes", "shared memory of 1 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// cutMemory ends all connections of shared memory that this process has.
func cutMemory() {
	const name = "@polyrail-"
	named := func(a syscall.Sockaddr, err error) bool {
		u, ok := a.(*syscall.SockaddrUnix)
		return err == nil && ok && strings.HasPrefix(u.Name, name)
	}
	for fd := range 1 << 10 {
		if listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err != nil || listens != 0 {
			continue
		}
		if named(syscall.Getsockname(fd)) || named(syscall.Getpeername(fd)) {
			// An error means that it has ended.
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

// No frame is whole in rings that small.
func TestMemoryMayFailWhileFramesAreFoldedFromIt(t *testing.T) {
	const elements, torn = 500_000, 40
	small := func(c *Config) { c.SharedMemoryRing = 16 << 10 }
	onHosts(t, "x x x", small, func(b *bed) {
		comms := b.form("train")
		ctx, cancel := b.timeout()
		defer cancel()
		resent := func() (frames uint64) {
			for _, n := range b.Nodes {
				for _, r := range n.Rails() {
					frames += r.Resent
				}
			}
			return frames
		}
		for resent() < torn {
			b.each(func(i int) error {
				buf, sum := operand(i, elements), make([]float32, elements)
				if i == 0 {
					go cutMemory()
				}
				if err := AllReduceInto(ctx, comms[i], sum, buf, Sum); err != nil {
					return err
				}
				if err := AllReduce(ctx, comms[i], buf, Sum); err != nil {
					return err
				}
				return errors.Join(checkSum(sum, len(comms)), checkSum(buf, len(comms)))
			})
		}
	})
}
