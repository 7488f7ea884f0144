//go:build unix

package measure

import (
	"syscall"
	"time"
)

// ProcessTime is the user and system time that this process has used.
func ProcessTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot happen: both arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
