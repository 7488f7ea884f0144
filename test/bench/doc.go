// Package bench holds the benchmarks of the data path, from a kernel to a whole allreduce, so that a
// change can be judged layer by layer: docs/performance.md says how. Their names are held to,
// since benchstat compares by name.
//
// What a package measures of its own insides (every kernel, every dispatcher) is in its
// own tests. Whole clusters over real networks are cmd/node bench's.
package bench
