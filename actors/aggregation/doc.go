// Package aggregation is what a node does as an aggregation node: it folds the operands of groups
// of other nodes, and sends each of them the result (SHArP, §III and §IV). In a tree of several levels
// a node's children may be nodes too, and what it folds goes up to its parent.
//
//	Server        what the groups of a node share: limits, lookup of frames, requests
//	└── group     one communicator on one rail: its children's peers, its core, its memory
//
//	aggregation   the actor that supervises
//	└── group     one group's lifecycle: its wait for connections, its end
//
// Decisions are sharp.Node's. As in package engine the data path has no actors: the reader that
// brings an operand, or the acknowledgement of a result, carries out what the core answers, and
// folds. What ranks do in a group, and which communicator asks for one, is decided elsewhere.
package aggregation
