// Package faults breaks networks and nodes by plan and checks that nothing is lost by it: a scenario in
// a few lines of text says who fails, how and when, Run plays it against a cluster of whole nodes
// that run collectives, and compares every result with a reference.
//
//	nodes 4
//	rails 2
//	speed 100MiB
//	at 200ms silence node1 rail0
//	at 900ms heal node1 rail0
//	at 1s kill node3
//	expect lost node3
//
// Frames that come twice, damaged, late or from an earlier connection, and actors that panic, are
// faults too.
//
// Use it in your own tests: Parse, Run. On the network in memory all of it takes virtual time where
// Run is called inside test/bubble's Nodes. A bubble of synctest.Test alone panics at its end, as
// goroutines of libraries outlive Run. On loopback (Options.Loopback) time is real, and Run in a
// bubble does not return. own_test.go plays a scenario, and breaks rails under a program of its own.
//
// It owns neither the faults (railactors/transport/fault and mem, cluster/memnet) nor the cluster.
package faults

import (
	"fmt"
	"strings"
	"time"
)

// Action is what a step does to a rail of a node, to a node, or to the gossip between nodes.
type Action uint8

// The actions.
const (
	Cut       Action = iota // connections break, new ones are refused
	Silence                 // packets vanish; nobody is told
	Unplug                  // packets vanish; the node's own system says that the link is down
	Heal                    // ends Cut, Silence and Unplug
	Reset                   // connections break, once
	Delay                   // bytes take longer by Step.Duration from now on
	Rate                    // the rail carries Step.Bytes a second from now on
	Duplicate               // a frame comes twice
	Corrupt                 // a frame comes with a bit turned
	Replay                  // a frame comes again, much later
	Stale                   // a frame of an earlier connection comes
	Kill                    // the node is gone, as a process that got SIGKILL
	Stop                    // the node stands still, as a process that got SIGSTOP: its host still confirms
	Panic                   // the node's actors of the kind Step.Actor panic
	Part                    // gossip passes between Step.Nodes, and between the others, only
	Unite                   // ends Part
)

var actionNames = [...]string{"cut", "silence", "unplug", "heal", "reset", "delay", "rate",
	"duplicate", "corrupt", "replay", "stale", "kill", "stop", "panic", "part", "unite"}

func (a Action) String() string {
	if int(a) >= len(actionNames) {
		return fmt.Sprintf("action %d", a)
	}
	return actionNames[a]
}

// toRail reports whether it is done to a rail.
func (a Action) toRail() bool { return a < Kill }

// tampers reports whether it changes what the frames are.
func (a Action) tampers() bool { return a >= Duplicate && a <= Stale }

// actors are the kinds that can panic. The first ones are the communicator's own, which breaks; the
// others cost nothing.
var actors = []string{"coordinator", "balancer", "operation", "worker", "communicator", "node", "pair", "peer", "peers", "rail", "rails"}

// AllRails is the Step.Rail for every rail.
const AllRails = -1

// Step is one action and when it is taken.
type Step struct {
	At       time.Duration // since the communicator was formed
	Do       Action
	Nodes    []int // one, for Part several, for Unite none
	Rail     int   // for what is done to a rail
	Duration time.Duration
	Bytes    int64  // a second; 0 lifts the limit
	Actor    string // for Panic
}

// Scenario is a cluster, what it does, and what is done to it.
type Scenario struct {
	Nodes, Rails int
	Operations   int           // of each rank, at least: they go on until the last step was taken
	Sizes        []int         // bytes of the operations, in turn
	Pause        time.Duration // between two operations
	// Bytes a second that each rail carries in each direction; 0: no limit. Virtual time passes only
	// where Speed or Pause is above 0: without both the steps never come, and Run does not return.
	Speed  int64
	Steps  []Step // ascending by time
	Lost   int    // the node that the others are to lose; -1: none
	Broken int    // the node whose failure breaks the communicator and leaves all nodes alive; -1: none
}

// The limits of a scenario.
const (
	maxNodes, maxRails = 16, 8
	maxOperations      = 100_000
	maxSizes           = 16
	maxSize            = 64 << 20
	maxSteps           = 1000
	maxTime            = 24 * time.Hour
)

// Default returns a scenario without faults.
func Default() Scenario {
	return Scenario{Nodes: 3, Rails: 2, Operations: 10, Sizes: []int{8, 64 << 10, 1 << 20}, Pause: 10 * time.Millisecond, Speed: 100 << 20, Lost: -1, Broken: -1}
}

// String writes the scenario so that Parse reads it.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes %d\nrails %d\noperations %d\nsizes", s.Nodes, s.Rails, s.Operations)
	for _, n := range s.Sizes {
		fmt.Fprintf(&b, " %s", formatSize(int64(n)))
	}
	fmt.Fprintf(&b, "\npause %v\nspeed %s\n", s.Pause, formatSize(s.Speed))
	for _, step := range s.Steps {
		fmt.Fprintf(&b, "%v\n", step)
	}
	if s.Lost >= 0 {
		fmt.Fprintf(&b, "expect lost node%d\n", s.Lost)
	}
	if s.Broken >= 0 {
		fmt.Fprintf(&b, "expect broken node%d\n", s.Broken)
	}
	return b.String()
}

// String writes the step as a line of a scenario.
func (s Step) String() string {
	line := fmt.Sprintf("at %v %v", s.At, s.Do)
	for _, n := range s.Nodes {
		line += fmt.Sprintf(" node%d", n)
	}
	switch {
	case s.Do == Panic:
		return line + " " + s.Actor
	case !s.Do.toRail():
		return line
	case s.Rail == AllRails:
		line += " rail*"
	default:
		line += fmt.Sprintf(" rail%d", s.Rail)
	}
	switch s.Do {
	case Delay:
		line += " " + s.Duration.String()
	case Rate:
		line += " " + formatSize(s.Bytes)
	}
	return line
}
