package testbed

import (
	"fmt"
	"runtime"
)

// NodeName names the i-th node.
func NodeName(i int) string { return fmt.Sprintf("node%d", i) }

// RailName names the k-th rail, on all nodes.
func RailName(k int) string { return fmt.Sprintf("rail%d", k) }

// Device is the k-th rail's device in memory.
func Device(k int) string { return fmt.Sprintf("eth%d", k) }

// Address is the k-th rail's device on loopback: Linux answers on all of 127/8, others on one
// address only.
func Address(k int) string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.0.0.%d", k+1)
}

// GossipAddr is where the i-th node's gossip listens in memory.
func GossipAddr(i int) string { return fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250+1) }
