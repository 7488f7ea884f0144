//go:build unix && !linux

package children

import "syscall"

// dieWithParent does nothing here: no such request exists.
func dieWithParent(*syscall.SysProcAttr) {}
