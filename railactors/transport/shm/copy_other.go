//go:build !amd64 || purego

package shm

// copyBytes is copy for memory that another processor has in its cache, or that no cache holds; dst and
// src don't overlap.
func copyBytes(dst, src []byte) int { return copy(dst, src) }
