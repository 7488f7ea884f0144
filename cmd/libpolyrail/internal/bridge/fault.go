package bridge

import (
	"context"
	"errors"

	"github.com/polyrail/polyrail"
)

// Code numbers what went wrong, as polyrail.h does.
type Code int32

// The codes. One error matches several; the first in this order counts.
const (
	OK       Code = iota
	Pending       // the call goes on
	Forked        // this process was forked after the library was loaded
	Canceled      // the call was canceled here
	RankLost
	Mismatch
	Minority
	Timeout
	Rail
	Closed
	Aborted
	Broken
	View
	Config
	Argument
	Limit
	Internal
	Other
)

// sentinels are what errors.Is finds for each code.
var sentinels = []struct {
	code Code
	err  error
}{
	{RankLost, polyrail.ErrRankLost}, {Mismatch, polyrail.ErrMismatch}, {Minority, polyrail.ErrMinority},
	{Canceled, context.Canceled}, {Timeout, polyrail.ErrTimeout}, {Rail, polyrail.ErrRail},
	{Closed, polyrail.ErrClosed}, {Aborted, polyrail.ErrAborted}, {Internal, polyrail.ErrInternal},
	{Limit, polyrail.ErrLimit}, {View, polyrail.ErrView}, {Config, polyrail.ErrConfig},
	{Argument, polyrail.ErrArgument}, {Broken, polyrail.ErrBroken},
}

// Fault is an error as C gets it.
type Fault struct {
	Code             Code
	Rank             int    // the culprit, or the other side; -1 where none is known
	Seq              uint64 // 0 where it is of no operation
	Node, Rail, Text string
}

// Describe takes an error apart.
func Describe(err error) Fault {
	f := Fault{Code: Other, Rank: -1}
	if err == nil {
		f.Code = OK
		return f
	}
	f.Text = err.Error()
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			f.Code = s.code
			break
		}
	}
	var (
		operation *polyrail.OperationError
		lost      *polyrail.RankLostError
		mismatch  *polyrail.MismatchError
		abort     *polyrail.AbortError
		rail      *polyrail.RailError
		view      *polyrail.ViewError
	)
	if errors.As(err, &operation) {
		f.Seq = operation.Seq
	}
	if errors.As(err, &rail) {
		f.Node, f.Rail = rail.Node, rail.Rail
	}
	if errors.As(err, &view) {
		f.Node = view.Node
	}
	switch {
	case errors.As(err, &lost):
		f.Rank, f.Node = int(lost.Rank), lost.Node
	case errors.As(err, &mismatch):
		f.Rank, f.Node = int(mismatch.Rank), mismatch.Node
	case errors.As(err, &abort):
		f.Rank, f.Node = int(abort.Rank), abort.Node
	}
	return f
}
