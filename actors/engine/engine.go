package engine

import (
	"sync"
	"time"

	"github.com/polyrail/polyrail/railactors"
	"github.com/polyrail/polyrail/railactors/board"
	"github.com/polyrail/polyrail/railactors/memory"
)

// Config is what shapes the operations of a node. The root package validates and fills it.
type Config struct {
	EagerBytes  int // operations up to this size go without a grant
	MaxInFlight int // operations of one communicator
	BcubeBase   int
	WaitSpin    time.Duration // how long callers poll for a small operation's frames; 0: not at all
	MemoryLimit int64         // bytes of scratch and copies
	Measured    bool          // tables follow what the rails are measured to do
	PinFrames   bool          // each frame goes over the rail that its share names, while that is up
	Free        bool          // of several algorithms the one that is measured to be fastest
	Trees       bool          // rails may have trees, and small operations go over them where that is faster
	Metered     bool          // operations are counted and timed, for those who look on
}

// Engine is what the operations of all of a node's communicators share. Its exported fields are
// set before the first group is made, and constant after.
type Engine struct {
	Config    Config
	Pool      *memory.Pool
	Rails     int
	Revoke    func(owner any) // takes memory back from whoever sends or fills it (railactors.Fabric)
	Listening func(n int32)   // how many more waits are in flight that nobody polls for (railactors.Fabric)
	Closed    func() error    // why the node takes no more calls, or nil
	Board     *board.Board    // where operands are shown to the other processes of the host; nil: nowhere
	Meters    *Meters         // nil: operations are not counted

	shown      shownGroups
	copies     *copies
	operations sync.Pool
	works      sync.Pool
}

// New makes an engine with a pool of memory of the configured size.
func New(cfg Config) *Engine {
	e := &Engine{Config: cfg, Pool: memory.NewPool(cfg.MemoryLimit), Listening: func(int32) {}}
	e.copies = &copies{e.Pool}
	if cfg.Metered {
		e.Meters = new(Meters)
	}
	e.operations.New = func() any { return new(Operation) }
	e.works.New = func() any { return new(Work) }
	return e
}

// Owner owns the lifecycle of an operation that was called here: its timer, its workers, its end.
type Owner interface {
	// Hand gives a frame to a peer, on the calling goroutine.
	Hand(f *railactors.Frame, to *railactors.Peer)
	// Ended says that nothing refers to the operation any more: the owner recycles it.
	Ended(o *Operation)
}

// Recycle pools an operation that nothing refers to.
func (e *Engine) Recycle(o *Operation) {
	o.mu.Lock()
	o.release()
	o.mu.Unlock()
	e.operations.Put(o)
}
