package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// sysctls of a host. Each NIC answers ARP for its own address only, so that a rail's
// traffic stays on it.
var sysctls = []string{
	"net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1",
	"net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2", "net.ipv4.conf.all.rp_filter=0",
	"net.ipv4.tcp_no_metrics_save=1",
}

// congestion control is the kernel's default, whatever the machine prefers: bbr, which leaves a link
// almost idle now and then to measure it, makes one operation in four up to a fifth longer.
const congestion = "cubic"

// build makes the namespaces and everything in them.
func (b *Bed) build() {
	b.t.Helper()
	if b.cfg.Hosts < 1 || b.cfg.Hosts > 250 || len(b.cfg.Rails) < 1 || len(b.cfg.Rails) > 100 {
		b.t.Fatalf("netlab: impossible bed: %+v", b.cfg)
	}
	b.run(nil, "ip", "netns", "add", b.sw())
	b.run(nil, "ip", "netns", "exec", b.sw(), "sysctl", "-qw", sysctls[0], sysctls[1])
	var bridges []string
	b.eachRail(func(rail int, _ Rate) {
		bridges = append(bridges,
			fmt.Sprintf("link add br%d mtu %d type bridge stp_state 0 forward_delay 0 mcast_snooping 0", rail, mtu),
			fmt.Sprintf("link set br%d up", rail))
	})
	b.ip(b.sw(), bridges...)
	for host := 1; host <= b.cfg.Hosts; host++ {
		b.addHost(host)
	}
}

func (b *Bed) addHost(host int) {
	b.t.Helper()
	b.run(nil, "ip", "netns", "add", b.ns(host))
	b.run(nil, "ip", append([]string{"netns", "exec", b.ns(host), "sysctl", "-qw"}, sysctls...)...)
	b.setCongestion(host)
	var inside, outside []string
	inside = append(inside, "link set lo up")
	b.eachRail(func(rail int, _ Rate) {
		outside = append(outside,
			fmt.Sprintf("link add %s mtu %d type veth peer name %s mtu %d netns %s", port(host, rail), mtu, NIC(rail), mtu, b.ns(host)),
			fmt.Sprintf("link set %s master br%d up", port(host, rail), rail))
		inside = append(inside,
			fmt.Sprintf("link set %s up", NIC(rail)),
			fmt.Sprintf("addr add %s/24 dev %s", b.Addr(host, rail), NIC(rail)))
	})
	b.ip(b.sw(), outside...)
	b.ip(b.ns(host), inside...)
	b.eachRail(func(rail int, r Rate) {
		if r > 0 {
			b.shape(host, rail, r)
		}
	})
}

// setCongestion sets a host's congestion control. A machine may allow its own namespaces others
// only; then the bed says so and runs with what there is: to allow it is a setting of the whole
// machine.
func (b *Bed) setCongestion(host int) {
	b.t.Helper()
	out, err := b.Command(host, "sysctl", "-qw", "net.ipv4.tcp_congestion_control="+congestion).CombinedOutput()
	if err != nil && host == 1 {
		b.t.Logf("netlab: this bed doesn't run %s, so operations may take longer: %v: %s(add it to the machine's net.ipv4.tcp_allowed_congestion_control)",
			congestion, err, out)
	}
}

func (b *Bed) eachRail(f func(rail int, r Rate)) {
	if b.cfg.Management {
		f(0, 0)
	}
	for i, r := range b.cfg.Rails {
		f(i+1, r)
	}
}

// shape limits both ends of a link, so that a NIC is full duplex at its rate, and a switch's port
// has a finite queue that drops its tail, as a real one has. Large packets are limited to a grain
// of time: a bucket that holds 64 KiB would let a slow link burst. But no bucket becomes smaller: a
// queued packet that does not fit would block the link until its rate rises.
func (b *Bed) shape(host, rail int, r Rate) {
	b.t.Helper()
	gso, queue := int64(65536), "qdisc replace dev %s root pfifo_fast"
	if r > 0 {
		bytesPerSecond := int64(r) / 8
		gso = min(max(bytesPerSecond*grainUS/1_000_000, mtu+14), 65536)
		bucket := max(gso+100+bytesPerSecond/10_000, b.buckets[port(host, rail)])
		b.buckets[port(host, rail)] = bucket
		queue = "qdisc replace dev %s root tbf " +
			fmt.Sprintf("rate %dbit burst %d limit %d", r, bucket, queueBytes)
	}
	for ns, dev := range map[string]string{b.ns(host): NIC(rail), b.sw(): port(host, rail)} {
		b.ip(ns, fmt.Sprintf("link set %s gso_max_size %d gro_max_size %d", dev, gso, gso))
		b.run([]string{fmt.Sprintf(queue, dev)}, "tc", "-n", ns, "-batch", "-")
	}
}

// down ends what runs on the bed and removes it, half-built ones too.
func (b *Bed) down() {
	for _, ns := range namespaces(b.t) {
		if strings.HasPrefix(ns, b.prefix+"-") {
			remove(b.t, ns)
		}
	}
}

// ownPrefix starts the names of this process's namespaces: polyrail-PID-START-, where START is
// the process's start time, since process ids are used again.
func ownPrefix(t testing.TB) string {
	t.Helper()
	start, ok := startTime(os.Getpid())
	if !ok {
		t.Fatal("netlab: cannot read this process's start time from /proc")
	}
	return fmt.Sprintf("polyrail-%d-%s-", os.Getpid(), start)
}

// startTime is when a living process started, in the kernel's clock ticks.
func startTime(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	// The second field is the program's name in parentheses, and may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const start = 22 - 3 // proc(5) counts from 1, and two fields are gone
	if len(fields) <= start {
		return "", false
	}
	return fields[start], true
}

var ours = regexp.MustCompile(`^polyrail-(\d+)-(\d+)-\d+-(sw|h\d+)$`)

// removeLeftovers removes the namespaces of test processes that live no more.
func removeLeftovers(t testing.TB) {
	t.Helper()
	for _, ns := range namespaces(t) {
		m := ours.FindStringSubmatch(ns)
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		if start, alive := startTime(pid); !alive || start != m[2] {
			t.Logf("netlab: removing %s, a leftover", ns)
			remove(t, ns)
		}
	}
}

func namespaces(t testing.TB) []string {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Logf("netlab: ip netns list: %v", err)
		return nil
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return names
}

// remove kills what runs in one of our namespaces and deletes it. Somebody else may have been faster.
func remove(t testing.TB, ns string) {
	pids, err := exec.Command("ip", "netns", "pids", ns).Output()
	if err == nil {
		for _, f := range strings.Fields(string(pids)) {
			// A test's own process can be listed, when a thread of it went in.
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			}
		}
	}
	if out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput(); err != nil {
		t.Logf("netlab: ip netns del %s: %v: %s", ns, err, out)
	}
}
