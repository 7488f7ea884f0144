// Package engine is the data path of a node's communicators: the engine of operations, and of
// messages between two ranks. It has no actors and knows none.
//
//	Engine        what all communicators of a node share: memory, limits, pools
//	└── Group     one communicator: its members' peers, its open operations by seq
//	    ├── Operation     one collective: parts, memory, landing of frames, early frames
//	    │   ├── part      what a lane carries: a task and its scratch
//	    │   └── shown     in place of parts: the operands of all ranks, of the smallest operations
//	    ├── boards        the pages on which those are shown to other processes of the host
//	    └── Transfers     sends and receives between two ranks, and the Exchange made of them
//
// The cores under collective/ decide; whoever brings an event carries out the answer: a pair's
// reader, a caller, the goroutine that acknowledges. What the engine needs of the layers above it
// is handed to it: Group.Fail breaks the communicator, an Owner owns an operation's lifecycle.
// Numbers, tables and farewells are agreed on above. Read docs/lifecycles.md next.
package engine
