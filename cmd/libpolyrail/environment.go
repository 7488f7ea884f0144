//go:build cgo

package main

// extern char **environ;
import "C"

import (
	"os"
	"strings"
	"unsafe"

	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// maxEnvironment bounds how many variables are looked at.
const maxEnvironment = 1 << 16

// refreshEnvironment makes Go see the settings that the process has in its environment now. Go copies
// the environment when the process starts, and C and Python change it later.
func refreshEnvironment() {
	now := map[string]string{}
	if C.environ != nil {
		for _, p := range unsafe.Slice(C.environ, maxEnvironment) {
			if p == nil {
				break
			}
			name, value, _ := strings.Cut(C.GoString(p), "=")
			if strings.HasPrefix(name, settings.EnvPrefix) {
				now[name] = value
			}
		}
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, there := now[name]; !there && strings.HasPrefix(name, settings.EnvPrefix) {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range now {
		if os.Getenv(name) != value {
			_ = os.Setenv(name, value)
		}
	}
}
