// Package actors is the control plane of a node: the actors that own the lifecycles
// of the node, its communicators and their operations.
//
//	node
//	├── rails …                  railactors.Fabric: rail supervisor, rails, pairs, peers
//	└── communicator "train"     breaks, closes and supervises what is below it
//	    ├── coordinator          numbers operations, reads the published table, starts operations
//	    ├── balancer             collects completion times; on rank 0 merges those of all ranks
//	    └── operation (pooled)   one collective's lifecycle
//	        └── worker per rail  hands frames to the peers and times its rail
//
// Decisions are made by the cores under collective/: an actor receives a message, asks
// its core, and carries out the answer. Payload passes no mailbox: package engine below is
// the landing table that a pair's reader consults directly; messages are about lifecycles.
// Read ARCHITECTURE.md, "one allreduce", next.
package actors
