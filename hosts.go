package polyrail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"

	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/hostid"
	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/shm"
)

// Host is a host of a communicator's members.
type Host struct {
	Name  string // Config.Host, or what the system says; empty where neither is known: one rank alone
	Ranks []int  // of the members that run there, ascending
	// SharedMemory says that these are several, and exchange their data through memory while that works.
	SharedMemory bool
}

// Hosts are the hosts that the members run on, in the order of their lowest ranks. They are part of
// what the members agreed on: the same on all ranks.
func (c *Communicator) Hosts() []Host {
	inner, err := c.of()
	if err != nil {
		return nil
	}
	places := inner.Group.Hosts
	var hosts []Host
	for _, ranks := range view.Together(places) {
		here := make([]view.Host, len(ranks))
		for i, rank := range ranks {
			here[i] = places[rank]
		}
		hosts = append(hosts, Host{Name: here[0].Name, Ranks: ranks, SharedMemory: view.AllShareMemory(here)})
	}
	return hosts
}

// SharedMemory is the state of the rail between nodes of this host, named "shm". It is none of Rails.
// False where there is none.
func (n *Node) SharedMemory() (s RailStatus, ok bool) {
	inner, err := n.of()
	if err != nil {
		return s, false
	}
	return inner.SharedMemory()
}

// SplitHost makes a communicator of the members on this node's host, in the order of their ranks
// here. It costs no connection. It is a collective call.
func (c *Communicator) SplitHost(ctx context.Context) (*Communicator, error) {
	for i, h := range c.Hosts() {
		for _, rank := range h.Ranks {
			if rank == c.Rank() {
				return c.Split(ctx, i, rank)
			}
		}
	}
	return c.Split(ctx, 0, 0) // it has no members, or has ended: Split says so
}

// host is where the node runs. A node whose system doesn't tell is alone on its host.
func (c Config) host(log *slog.Logger) string {
	if c.Host != "" {
		return c.Host
	}
	id, err := hostid.ID()
	if err != nil {
		log.Warn("host not known: the node shares no memory unless --host names it", "error", err)
	}
	return id
}

// memory is the transport within the host, or nil. Rails with transports of their own are networks
// that somebody has made, which this would bypass.
func (c Config) memory() transport.Transport {
	if !c.SharedMemory {
		return nil
	}
	for _, r := range c.Rails {
		if r.Transport != nil {
			return nil
		}
	}
	return shm.New(c.shm())
}

func (c Config) shm() shm.Options {
	return shm.Options{RingBytes: c.SharedMemoryRing, MaxBytes: int(c.SharedMemoryLimit)}
}

// validateHosts lists what is wrong with where the node is said to run.
func (c Config) validateHosts() (faults []error) {
	if len(c.Host) > view.MaxHost || !utf8.ValidString(c.Host) {
		faults = append(faults, fmt.Errorf("host %q: needs at most %d bytes of text", c.Host, view.MaxHost))
	}
	for _, r := range c.Rails {
		if c.SharedMemory && r.Name == railactors.MemoryRail {
			faults = append(faults, fmt.Errorf("rail %q: the name of the rail within a host (turn shared memory off, or name it otherwise)", r.Name))
		}
	}
	if c.SharedMemoryRing < 0 || c.SharedMemoryLimit < 0 || c.SharedMemoryLimit > 1<<40 {
		return append(faults, errors.New("shared memory: its ring and limit must not be negative, nor above 1 TiB"))
	}
	if err := c.shm().Validate(); err != nil {
		faults = append(faults, fmt.Errorf("shared memory: %w", err))
	}
	return faults
}
