// Package balancing measures what a communicator's rails can do, and decides from that how
// operations are divided among them: the balancer actor, the probe of a new communicator, the
// tuning file. The decisions are package balance's; the tables that they become are agreed on by
// the layer above, which the balancer asks with a Propose. What the rails took for an operation
// comes from package engine as a Timed.
//
//	Node         what a node has measured before: probes of the same nodes, the tuning file
//	└── Group    one communicator's part
//	    └── balancer    the actor: collects completion times; on rank 0 merges those of all ranks
package balancing
