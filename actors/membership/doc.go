// Package membership forms communicators: the node actor, and what a node knows of its
// communicators by their wire ids.
//
//	node
//	├── rails …                  railactors.Fabric: rail supervisor, rails, pairs, peers
//	└── communicator "train"     package communicator, on top of balancing and engine
//
// Decisions are made by the cores under collective/: an actor receives a message, asks
// its core, and carries out the answer. Payload passes no mailbox: package engine is the
// landing table that a pair's reader consults directly; messages are about lifecycles.
// Read ARCHITECTURE.md, "one allreduce", next.
package membership
