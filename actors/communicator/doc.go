// Package communicator owns the lifecycle of communicators and of their operations: which call
// gets which number and table, when a communicator begins, ends and breaks, and that the other
// ranks hear of it.
//
//	Node                     what the communicators of a node share
//	└── Group                one communicator: its data path (engine), its balancing, its end
//	    └── communicator     the actor: supervises what is below it, says farewell
//	        ├── coordinator  numbers calls, agrees on tables, starts operations
//	        ├── balancer     of package balancing
//	        └── operation (pooled)   one collective's lifecycle
//	            └── worker per rail  reports what the rail took, and fails for its frames
//
// Callers hold a Communicator. Who the members are, and how a node comes to know a communicator by
// its wire id, is the business of the layer above, the Registry.
package communicator
