// Package fault holds the errors that a caller of polyrail can meet. They are typed,
// name the culprit, and work with errors.Is and errors.As.
//
// It owns the types and their texts; who decides that a rank is lost is in
// railactors, who tells the others is in actors.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/op"
)

// Sentinels for errors.Is. A typed error below matches the one that is named in its comment.
var (
	// ErrClosed: the communicator or the node was closed here.
	ErrClosed = errors.New("closed")
	// ErrBroken: an earlier operation failed and broke the communicator; the cause is wrapped.
	ErrBroken = errors.New("communicator is broken")
	// ErrMismatch: ranks called different operations under one seq.
	ErrMismatch = errors.New("ranks disagree about an operation")
	// ErrRankLost: a rank's process or host is gone.
	ErrRankLost = errors.New("rank lost")
	// ErrAborted: another rank ended the operation.
	ErrAborted = errors.New("aborted by another rank")
	// ErrTimeout: an operation, or a step of forming a communicator, took too long.
	ErrTimeout = errors.New("timed out")
	// ErrRail: a rail failed, or cannot be used.
	ErrRail = errors.New("rail failed")
	// ErrConfig: the configuration has faults.
	ErrConfig = errors.New("invalid configuration")
	// ErrArgument: a call lacks its context, communicator, node, operation or message, or has an
	// argument that cannot be.
	ErrArgument = errors.New("invalid argument")
	// ErrView: a communicator could not be formed.
	ErrView = errors.New("communicator could not be formed")
	// ErrMinority: too few members are left to go on; others may be going on elsewhere.
	ErrMinority = errors.New("not a majority")
	// ErrLimit: a limit of the runtime was reached.
	ErrLimit = errors.New("limit reached")
	// ErrInternal: a part of polyrail itself failed (a recovered panic).
	ErrInternal = errors.New("internal failure")
)

// OperationError is what an operation's Work ends with: the operation, and the cause.
// It unwraps to the cause.
type OperationError struct {
	Communicator string
	Seq          uint64
	Operation    op.Descriptor
	Cause        error
}

func (e *OperationError) Error() string {
	return fmt.Sprintf("communicator %q, seq %d, %v: %v", e.Communicator, e.Seq, e.Operation, e.Cause)
}
func (e *OperationError) Unwrap() error { return e.Cause }

// RankLostError matches ErrRankLost.
type RankLostError struct {
	Rank   op.Rank // -1 where the rank number isn't known
	Node   string
	Reason string
}

func (e *RankLostError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("node %q lost: %s", e.Node, e.Reason)
	}
	return fmt.Sprintf("rank %d (node %q) lost: %s", e.Rank, e.Node, e.Reason)
}
func (e *RankLostError) Is(target error) bool { return target == ErrRankLost }

// MismatchError matches ErrMismatch: two ranks called different operations under one seq.
type MismatchError struct {
	Rank        op.Rank // the other one
	Node        string
	Mine        string // what was called here
	Theirs      string // what was called there
	Explanation string // what differs where the two texts are equal (name of an operator, table version)
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("this rank called %s, rank %d (node %q) called %s", e.Mine, e.Rank, e.Node, e.Theirs)
	if e.Explanation != "" {
		s += " (" + e.Explanation + ")"
	}
	return s
}
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// AbortError matches ErrAborted and, by Code, the sentinel of the cause on the rank that aborted.
type AbortError struct {
	Rank   op.Rank // who ended it
	Node   string
	Code   Code
	Reason string // the cause's text there
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("aborted by rank %d (node %q): %s", e.Rank, e.Node, e.Reason)
}
func (e *AbortError) Is(target error) bool {
	return target == ErrAborted || (target != nil && target == e.Code.sentinel())
}

// RailError matches ErrRail.
type RailError struct {
	Rail string
	Node string // the other side, or this node where the rail cannot be used at all
	Err  error
}

func (e *RailError) Error() string {
	return fmt.Sprintf("rail %q, node %q: %v", e.Rail, e.Node, e.Err)
}
func (e *RailError) Unwrap() error        { return e.Err }
func (e *RailError) Is(target error) bool { return target == ErrRail }

// MaxListed bounds the nodes that an error names.
const MaxListed = 16

// List names the first of some culprits, and says how many more there are.
func List(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// TimeoutError matches ErrTimeout.
type TimeoutError struct {
	What  string // "allreduce", "waiting for 3 of 4 nodes"
	After time.Duration
}

func (e *TimeoutError) Error() string        { return fmt.Sprintf("%s: timed out after %v", e.What, e.After) }
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// ViewError matches ErrView: a communicator could not be formed.
type ViewError struct {
	Name   string
	Node   string // the culprit; empty if there is none
	Reason string
}

func (e *ViewError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("communicator %q: %s", e.Name, e.Reason)
	}
	return fmt.Sprintf("communicator %q: node %q: %s", e.Name, e.Node, e.Reason)
}
func (e *ViewError) Is(target error) bool { return target == ErrView }

// MinorityError matches ErrMinority and ErrView: the nodes that are left of a communicator must not
// go on alone, because the missing ones could.
type MinorityError struct {
	Name    string   // of the communicator
	Left    []string // nodes that are there or could still come
	Missing []string // nodes that are lost, or will not come
	Of      int      // members of which Left would have to be a majority
}

func (e *MinorityError) Error() string {
	return fmt.Sprintf("communicator %q: %d nodes left (%s) are no majority of %d; missing: %s",
		e.Name, len(e.Left), List(e.Left, MaxListed), e.Of, List(e.Missing, MaxListed))
}

// Is matches both sentinels.
func (e *MinorityError) Is(target error) bool { return target == ErrMinority || target == ErrView }

// Code numbers a cause on the wire, so that an abort tells every rank what kind it was.
type Code uint8

// The causes of an abort.
const (
	CodeOther Code = iota
	CodeCanceled
	CodeTimeout
	CodeMismatch
	CodeRankLost
	CodeClosed
	CodeRail
	CodeInternal
)

func (c Code) sentinel() error {
	switch c {
	case CodeTimeout:
		return ErrTimeout
	case CodeMismatch:
		return ErrMismatch
	case CodeRankLost:
		return ErrRankLost
	case CodeClosed:
		return ErrClosed
	case CodeRail:
		return ErrRail
	case CodeInternal:
		return ErrInternal
	}
	return nil
}

// CodeOf classifies a cause.
func CodeOf(err error) Code {
	for c := CodeTimeout; c <= CodeInternal; c++ {
		if errors.Is(err, c.sentinel()) {
			return c
		}
	}
	return CodeOther
}
