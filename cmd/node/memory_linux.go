package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// hostMemory is how many bytes of memory this host has, or this process may have; 0: unknown.
func hostMemory() int {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	has := int(info.Totalram) * int(info.Unit)
	if limit := groupMemory("/"); limit > 0 {
		has = min(has, limit)
	}
	return has
}

// groupMemory is the lowest limit of memory of this process's control groups, as a container has;
// 0: none is known. Root is where /proc and /sys are.
func groupMemory(root string) (limit int) {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(own)) { // NUMBER:CONTROLLERS:PATH
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		mounted, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		if fields[1] != "" { // version 1
			mounted, file = filepath.Join(mounted, "memory"), "memory.limit_in_bytes"
			if !slices.Contains(strings.Split(fields[1], ","), "memory") {
				continue
			}
		}
		// A group is bound by those above it. Inside a container there may be the topmost only.
		for path := filepath.Join("/", fields[2]); ; path = filepath.Dir(path) {
			text, _ := os.ReadFile(filepath.Join(mounted, path, file))
			bytes, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err == nil && bytes > 0 && (limit == 0 || bytes < limit) {
				limit = bytes
			}
			if path == "/" {
				break
			}
		}
	}
	return limit
}
