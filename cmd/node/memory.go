package main

import (
	"fmt"

	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// fitsMemory is an error if operands of a size can't be in this host's memory: each of so many
// processes has a source and a destination. Go ends a process that asks for more with a stack
// trace, and the kernel one that touches more without a word.
func fitsMemory(size, processes int) error {
	has := hostMemory()
	if has == 0 || size <= has/2/max(processes, 1) {
		return nil
	}
	return fmt.Errorf("--sizes %s: two buffers in each of %d processes are more than the memory "+
		"of this host or container (%d MiB)", settings.FormatSize(size), max(processes, 1), has>>20)
}
