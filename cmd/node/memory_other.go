//go:build !linux

package main

// hostMemory is how many bytes of memory this host has; 0: unknown.
func hostMemory() int { return 0 }
