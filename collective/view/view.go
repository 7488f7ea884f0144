// Package view is the pure core of the agreement on membership (docs/decisions/012): who
// is in a communicator, and with which ranks. Gossip says who lives; this package
// lets nodes that ask for one name agree on a View, by ballot and barrier.
//
// It owns the decisions. Messages travel by cluster, connections and barriers are
// railactors' and actors': the Core is told events and returns actions.
// Read protocol.go for what is said, core.go for how.
package view

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"sort"
	"unicode/utf8"
)

// Limits. What exceeds them is refused, whether it comes from a caller or from the network.
const (
	MaxName      = 128   // bytes of a communicator's name
	MaxNode      = 128   // bytes of a node's name
	MaxMembers   = 4096  // of a view
	MaxRails     = 32    // of a member
	MaxRail      = 128   // bytes of a rail's name
	MaxAddr      = 256   // bytes of a rail's address
	MaxHost      = 256   // bytes of a host's name, as of its address
	MaxReason    = 1024  // bytes of a text that a peer sends
	MaxSettings  = 16    // of an ask
	MaxSetting   = 400   // bytes; two of them, and names, are a reason
	MaxCalls     = 1024  // waiting calls of this node
	MaxKnownAsks = 16384 // asks of other nodes that are remembered
	MaxBallot    = 1 << 62

	// MaxStrangers bounds the asks that are remembered of nodes that gossip does not know (yet):
	// anybody can speak in such names.
	MaxStrangers = 1024
	// maxBallotJump is how far one message moves this node's ballots forward: far more than there
	// are ballots in a cluster's life, and whoever wants to use them up needs 2⁴² messages.
	maxBallotJump = 1 << 20
)

// Rail is one rail of a member, as the others reach it. Addr is empty while the member's device is
// absent.
type Rail struct{ Name, Addr string }

// Host is where a member runs. Members of equal names run on one host; one without a name runs on a
// host of its own. Memory is where processes of that host share memory with it; empty where they
// don't.
type Host struct{ Name, Memory string }

// Member is a node in a view. Its rank is its index there.
type Member struct {
	Node        string
	Incarnation uint64 // of its process
	Ask         uint64 // number of the call that this membership answers
	Rails       []Rail // ascending by name: a rail has the same index on every rank
	Host        Host
}

// View is the result of an agreement. It is immutable.
type View struct {
	Name    string
	Ballot  uint64
	Nonce   uint64
	ID      uint64   // communicator's number on the wire: WireID(Name, Ballot, Nonce)
	Members []Member // ascending by node; Members[0] proposed the view
	Uneven  SeqRange // of a view that shrinks another: what some members finished there and others did not
}

// WireID is the communicator's number on the wire; never 0. The nonce is random, so
// frames of an old communicator match no later one of the same name.
func WireID(name string, ballot, nonce uint64) uint64 {
	h := fnv.New64a()
	putString(h, name)
	putUint(h, ballot)
	putUint(h, nonce)
	return max(h.Sum64(), 1)
}

// Digest covers everything in the view. The barrier that commits it compares digests.
func (v *View) Digest() uint64 {
	h := fnv.New64a()
	putString(h, v.Name)
	putUint(h, v.Ballot)
	putUint(h, v.Nonce)
	putUint(h, v.Uneven.First)
	putUint(h, v.Uneven.Last)
	putUint(h, uint64(len(v.Members)))
	for _, m := range v.Members {
		putString(h, m.Node)
		putUint(h, m.Incarnation)
		putUint(h, m.Ask)
		putUint(h, uint64(len(m.Rails)))
		for _, r := range m.Rails {
			putString(h, r.Name)
			putString(h, r.Addr)
		}
		putString(h, m.Host.Name)
		putString(h, m.Host.Memory)
	}
	return h.Sum64()
}

// Rank is the node's index in the view, or -1.
func (v *View) Rank(node string) int {
	i := sort.Search(len(v.Members), func(i int) bool { return v.Members[i].Node >= node })
	if i < len(v.Members) && v.Members[i].Node == node {
		return i
	}
	return -1
}

// member returns the node's entry, or nil.
func (v *View) member(node string) *Member {
	if i := v.Rank(node); i >= 0 {
		return &v.Members[i]
	}
	return nil
}

// Validate reports the first reason why v cannot be a view, or nil.
func (v *View) Validate() error {
	switch {
	case !ValidName(v.Name):
		return fmt.Errorf("name %q: 1 to %d bytes of text", v.Name, MaxName)
	case v.Ballot == 0 || v.Ballot > MaxBallot:
		return fmt.Errorf("ballot %d out of range", v.Ballot)
	case v.ID != WireID(v.Name, v.Ballot, v.Nonce):
		return fmt.Errorf("wire id %x does not belong to name, ballot and nonce", v.ID)
	case len(v.Members) == 0 || len(v.Members) > MaxMembers:
		return fmt.Errorf("%d members (1 to %d)", len(v.Members), MaxMembers)
	}
	for i, m := range v.Members {
		if err := m.validate(); err != nil {
			return err
		}
		if i > 0 && v.Members[i-1].Node >= m.Node {
			return fmt.Errorf("members %q, %q not ascending", v.Members[i-1].Node, m.Node)
		}
	}
	if node, reason := railMismatch(v.Members); node != "" {
		return fmt.Errorf("node %q: %s", node, reason)
	}
	return nil
}

func (m *Member) validate() error {
	if !validText(m.Node, MaxNode) {
		return fmt.Errorf("node name %q: 1 to %d bytes of text", m.Node, MaxNode)
	}
	if err := validateRails(m.Rails); err != nil {
		return fmt.Errorf("node %q: %w", m.Node, err)
	}
	if err := m.Host.validate(); err != nil {
		return fmt.Errorf("node %q: %w", m.Node, err)
	}
	return nil
}

func (h *Host) validate() error {
	if h.Name != "" && !validText(h.Name, MaxHost) || h.Memory != "" && !validText(h.Memory, MaxAddr) {
		return fmt.Errorf("host %q with memory at %q: at most %d bytes of text each", h.Name, h.Memory, MaxHost)
	}
	return nil
}

// ValidName reports whether name can be a communicator's.
func ValidName(name string) bool { return validText(name, MaxName) }

// validText: messages carry UTF-8 only.
func validText(s string, maxBytes int) bool {
	return s != "" && len(s) <= maxBytes && utf8.ValidString(s)
}

func validSettings(settings []string) bool {
	return len(settings) <= MaxSettings &&
		!slices.ContainsFunc(settings, func(s string) bool { return !validText(s, MaxSetting) })
}

func validateRails(rails []Rail) error {
	if len(rails) > MaxRails {
		return fmt.Errorf("%d rails (at most %d)", len(rails), MaxRails)
	}
	for i, r := range rails {
		if !validText(r.Name, MaxRail) || r.Addr != "" && !validText(r.Addr, MaxAddr) {
			return fmt.Errorf("rail %q at %q: 1 to %d and at most %d bytes of text", r.Name, r.Addr,
				MaxRail, MaxAddr)
		}
		if i > 0 && rails[i-1].Name >= r.Name {
			return fmt.Errorf("rails %q, %q not ascending", rails[i-1].Name, r.Name)
		}
	}
	return nil
}

// railMismatch finds a member that lacks a rail which another has, and says so.
// It returns "" when all have rails of the same names.
func railMismatch(members []Member) (node, reason string) {
	first := &members[0]
	for i := range members[1:] {
		m := &members[1+i]
		if rail, ok := lacks(m, first); ok {
			return m.Node, fmt.Sprintf("lacks rail %q, which node %q has", rail, first.Node)
		}
		if rail, ok := lacks(first, m); ok {
			return first.Node, fmt.Sprintf("lacks rail %q, which node %q has", rail, m.Node)
		}
	}
	return "", ""
}

// lacks names a rail of b that a doesn't have.
func lacks(a, b *Member) (rail string, ok bool) {
	for _, r := range b.Rails {
		if !slices.ContainsFunc(a.Rails, func(x Rail) bool { return x.Name == r.Name }) {
			return r.Name, true
		}
	}
	return "", false
}

func putUint(h hash.Hash64, u uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], u)
	h.Write(b[:])
}

// putString writes the length too, so that ("ab","c") and ("a","bc") differ.
func putString(h hash.Hash64, s string) {
	putUint(h, uint64(len(s)))
	h.Write([]byte(s))
}
