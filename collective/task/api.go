// Package task is the pure core of one lane's part of an operation: it runs a schedule's
// program for every span of the lane, as a dataflow over the rank's own input and the
// frames that it receives.
//
// It owns the order of things: what may be sent, reduced, granted and resolved when. It
// touches no byte: whoever delivers an event carries out the actions that Step returns,
// and says with another event when that is done. It isn't safe for concurrent use.
//
// Life of a Task: Reset, [Granted …], Start, then Place, Claim, Arrived, Torn, Folded, Reduced,
// Released and Granted in any order, until it has returned Retire; Abort at any time after Reset.
package task

import (
	"errors"

	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/plan"
	"github.com/polyrail/polyrail/collective/schedule"
)

// ErrAborted is Place's answer after Abort: the frame is to be sunk.
var ErrAborted = errors.New("operation aborted")

// Memory is one of the memories of an operation.
type Memory uint8

// The memories. In an in-place operation Input and Final are the same bytes.
const (
	Input   Memory = iota // the user's source
	Scratch               // the operation's arena, of ScratchBytes
	Final                 // the user's destination
)

// Loc is a range of bytes in a memory.
type Loc struct {
	Mem      Memory
	Off, Len int
}

// Ref names one instruction of the program in one span. Refs are dense from 0; those of
// an earlier Reset mean something else.
type Ref uint32

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	Start    EventKind = iota // the caller is here: its memory may be used
	Granted                   // From allows the first Limit spans; older limits are ignored
	Arrived                   // the frame that was placed as Ref is whole in its place
	Torn                      // the frame that was placed as Ref will come again; nobody writes its place
	Folded                    // the Reduce that Claim began is done: the frame that was placed as Ref is folded
	Reduced                   // the Reduce or Copy Ref is done
	Released                  // the memory of the Send Ref isn't read any more: copied, or acknowledged
	Abort                     // nothing is begun any more; what is outstanding still reports its end
)

// Event is what happened.
type Event struct {
	Kind  EventKind
	Ref   Ref     // Arrived, Torn, Folded, Reduced, Released
	From  op.Rank // Granted
	Limit int     // Granted: spans
}

// ActionKind says what is to be done.
type ActionKind uint8

// The kinds of action.
const (
	Send    ActionKind = iota // send Loc to To; answered by Released
	Reduce                    // fold Args from left to right into Dst; answered by Reduced
	Copy                      // copy Args[0] to Dst; answered by Reduced
	Grant                     // tell To that it may send the first Limit spans of Rail
	Resolve                   // the user's memory is no longer touched; complete unless aborted. Once, before Retire
	Retire                    // nothing is outstanding, the arena is no longer touched. Once
)

// Action is what is to be done.
type Action struct {
	Kind   ActionKind
	User   bool    // Send: reads the user's memory
	AckNow bool    // Send: the last one, or the last one from the user's memory, to this peer
	Last   bool    // Reduce, Copy: the result is final (here an average is divided)
	Ref    Ref     // Send, Reduce, Copy
	To     op.Rank // Send, Grant
	Span   int     // Send: index in the lane's Spans
	Mark   int     // Send: names the frame at its receiver, with Step
	Step   int     // Send
	Limit  int     // Grant: spans, cumulative
	Loc    Loc     // Send
	Dst    Loc     // Reduce, Copy; Reduce: may be exactly Args[0] or Args[1]
	Args   []Loc   // Reduce, Copy: valid until Reduced is delivered
}

// Frame is what a frame's header says of where it belongs.
type Frame struct {
	From         op.Rank
	First, Count int // rounds
	Mark, Step   int
	Bytes        int
}

// Config is what shapes a part of an operation.
type Config struct {
	Program *schedule.Program
	Plan    *plan.Plan // of the program's blocks
	Lane    int        // index in Plan.Lanes
	InPlace bool       // where a block has both, its Source and its Target are the same memory
	Eager   bool       // data goes without grants; scratch is held for all spans
	Window  int        // spans that have scratch at a time, at least 1; unless Eager
}
