package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/fault"
)

// ConflictError: another living process goes by this node's name. It was there first, so this
// one has left. Matches fault.ErrConfig.
type ConflictError struct {
	Node string
	Addr string // of the other one
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the name %q belongs to another living node, at %s", e.Node, e.Addr)
}

// Is makes errors.Is(err, fault.ErrConfig) hold.
func (e *ConflictError) Is(target error) bool { return target == fault.ErrConfig }

// VersionError: a node of the cluster speaks another version of the protocol. Matches fault.ErrConfig.
type VersionError struct {
	Node        string // the other one
	Addr        string
	Theirs      uint32
	Mine        uint32
	ThisNode    string
	Explanation string // where the metadata could not be read at all
}

func (e *VersionError) Error() string {
	if e.Explanation != "" {
		return fmt.Sprintf("node %q at %s does not speak polyrail's protocol: %s", e.Node, e.Addr, e.Explanation)
	}
	return fmt.Sprintf("node %q at %s speaks version %d of the protocol, this node %q version %d",
		e.Node, e.Addr, e.Theirs, e.ThisNode, e.Mine)
}

// Is makes errors.Is(err, fault.ErrConfig) hold.
func (e *VersionError) Is(target error) bool { return target == fault.ErrConfig }

// SeedError is why one seed could not be joined.
type SeedError struct {
	Seed string
	Err  error
}

// JoinError: no seed was reached in time. Matches fault.ErrTimeout.
type JoinError struct {
	After time.Duration // since the start
	Seeds []SeedError
}

func (e *JoinError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no seed reached within %v", e.After.Round(time.Millisecond))
	separator := ": "
	for _, s := range e.Seeds {
		fmt.Fprintf(&b, "%s%s (%v)", separator, s.Seed, s.Err)
		separator = "; "
	}
	return b.String()
}

// Is makes errors.Is(err, fault.ErrTimeout) hold.
func (e *JoinError) Is(target error) bool { return target == fault.ErrTimeout }
