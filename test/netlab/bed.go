// Package netlab builds test beds out of network namespaces: hosts with one NIC per rail,
// shaped links, switches, and links that can be cut.
//
//	host 1: rail1 10.78.1.1 ──veth── [ h1r1 │ bridge br1 │ h2r1 ] ──veth── rail1 10.78.1.2 :host 2
//	        rail2 10.78.2.1 ──veth── [ h1r2 │ bridge br2 │ h2r2 ] ──veth── rail2 10.78.2.2
//	        mgmt  10.78.0.1 ──veth── [ h1r0 │ bridge br0 │ h2r0 ] ──veth── mgmt  10.78.0.2   (unshaped)
//
// The bridges live in a namespace of their own, so that nothing is visible in the root
// namespace. Beds need root; without it Up skips the test. A bed goes with its
// test; what a killed test process left behind goes with the next one that runs.
//
// It owns namespaces named polyrail-…, and the processes in them. What runs on the hosts
// is the tests' business.
package netlab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Rate is bits per second; 0 is unshaped.
type Rate int64

// Mbit is a million bits per second.
const Mbit Rate = 1_000_000

// Config is a bed's shape.
type Config struct {
	Hosts      int    // 1 … 250
	Rails      []Rate // each NIC's rate on that rail, in each direction
	Management bool   // add an unshaped NIC "mgmt" to each host, as rail 0
}

// Bed is a set of hosts, numbered from 1, with rails, numbered from 1.
type Bed struct {
	t       testing.TB
	cfg     Config
	prefix  string
	buckets map[string]int64 // bytes that a link's shaper lets pass at once, by port
}

// Cut is a way for a link to fail.
type Cut int

// The ways for a link to fail.
const (
	Carrier Cut = iota // the cable is pulled: both ends see it
	Admin              // the host takes its NIC down: its routes vanish
	Silent             // the switch drops everything: nobody sees it
)

const (
	mtu        = 9000
	grainUS    = 200     // µs of the rate that a packet given to a NIC, and the shaper's bucket, hold
	queueBytes = 1 << 20 // of a NIC and of a switch port
)

var beds atomic.Int64 // of this process

// Up builds a bed for the duration of the test, or skips the test where that is impossible.
func Up(t testing.TB, cfg Config) *Bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a bed of network namespaces needs root")
	}
	for _, tool := range []string{"ip", "tc", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: a bed of network namespaces needs %s (iproute2, procps)", tool)
		}
	}
	removeLeftovers(t)
	b := &Bed{t: t, cfg: cfg, prefix: fmt.Sprintf("%s%d", ownPrefix(t), beds.Add(1)), buckets: map[string]int64{}}
	t.Cleanup(b.down)
	b.build()
	return b
}

// NIC is a rail's device name on every host: "rail1", or "mgmt" for rail 0.
func NIC(rail int) string {
	if rail == 0 {
		return "mgmt"
	}
	return "rail" + strconv.Itoa(rail)
}

// Addr is a host's address on a rail, without a port.
func (b *Bed) Addr(host, rail int) string { return fmt.Sprintf("10.78.%d.%d", rail, host) }

// Command prepares a program to be run on a host. The process that it starts is the program itself,
// which can be signalled. It is killed, at the latest, with the bed.
func (b *Bed) Command(host int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", b.ns(host), name}, args...)...)
}

// Cut breaks a host's link to a rail.
func (b *Bed) Cut(host, rail int, how Cut) {
	b.t.Helper()
	switch how {
	case Carrier:
		b.ip(b.sw(), "link set "+port(host, rail)+" down")
	case Admin:
		b.ip(b.ns(host), "link set "+NIC(rail)+" down")
	case Silent:
		b.ip(b.sw(), "link set "+port(host, rail)+" nomaster")
	default:
		b.t.Fatalf("netlab: no such cut: %d", how)
	}
}

// Restore undoes any cut of the link.
func (b *Bed) Restore(host, rail int) {
	b.t.Helper()
	b.ip(b.sw(), fmt.Sprintf("link set %s master br%d up", port(host, rail), rail))
	b.ip(b.ns(host), "link set "+NIC(rail)+" up")
}

// SetRate changes the rate of one host's link to a rail, in both directions.
func (b *Bed) SetRate(host, rail int, r Rate) {
	b.t.Helper()
	b.shape(host, rail, r)
}

// Traffic is what a NIC has carried, in bytes with all headers.
type Traffic struct{ Sent, Received uint64 }

// Traffic reads the counters of a host's NIC.
func (b *Bed) Traffic(host, rail int) Traffic {
	b.t.Helper()
	out := b.run(nil, "ip", "-n", b.ns(host), "-s", "-j", "link", "show", "dev", NIC(rail))
	var links []struct {
		Stats struct {
			Rx, Tx struct{ Bytes uint64 }
		} `json:"stats64"`
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		b.t.Fatalf("netlab: counters of host %d, %s: %v in %q", host, NIC(rail), err, out)
	}
	return Traffic{Sent: links[0].Stats.Tx.Bytes, Received: links[0].Stats.Rx.Bytes}
}

func (b *Bed) ns(host int) string { return fmt.Sprintf("%s-h%d", b.prefix, host) }
func (b *Bed) sw() string         { return b.prefix + "-sw" }

// port is a NIC's other end, in the switches' namespace.
func port(host, rail int) string { return fmt.Sprintf("h%dr%d", host, rail) }

// ip runs commands of ip(8) in a namespace.
func (b *Bed) ip(ns string, commands ...string) {
	b.t.Helper()
	b.run(commands, "ip", "-n", ns, "-batch", "-")
}

// run runs a tool with lines for its input and returns its output. A failure ends the test.
func (b *Bed) run(input []string, name string, args ...string) []byte {
	b.t.Helper()
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(input, "\n")+"\n"), &out, &errs
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("netlab: %s: %v: %s\n%s", strings.Join(cmd.Args, " "), err, errs.String(), strings.Join(input, "\n"))
	}
	return out.Bytes()
}
