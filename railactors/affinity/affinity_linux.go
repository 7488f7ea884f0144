package affinity

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// allowed is what the process was started with. Later, a thread's own mask might be one that Bind set.
var allowed, allowedErr = mask()

func mask() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("cores of this process: %w", err)
	}
	for c := range MaxCores {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}
	return cores, nil
}

// Allowed lists the cores that this process may use, as of its start.
func Allowed() ([]int, error) { return allowed, allowedErr }

// Bind locks the calling goroutine to its thread and restricts that to these cores, until release
// is called on the same goroutine. The thread is kept: one that ended with its goroutine could be
// the process's first, which can't end, and by whose mask tools judge the process. After an error
// nothing is bound, and release does nothing.
func Bind(cores []int) (release func(), err error) {
	runtime.LockOSThread()
	if err := restrict(cores); err != nil {
		runtime.UnlockOSThread()
		return func() {}, err
	}
	return func() {
		if restrict(allowed) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
	}, nil
}

func restrict(cores []int) error {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding a thread to core %s: %w", Format(cores), err)
	}
	return nil
}
