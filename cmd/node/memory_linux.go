package main

import "syscall"

// hostMemory is how many bytes of memory this host has; 0: unknown.
func hostMemory() int {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int(info.Totalram) * int(info.Unit)
}
