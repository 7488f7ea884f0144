// Package hostid tells hosts apart (docs/decisions/036).
package hostid

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strings"
)

// Where Linux says which boot of which kernel this is, and which namespaces the process is in.
// Containers of one machine share the first. Namespaces of networks alone, as a test bed has, share the
// second too.
var sources = []string{"/proc/sys/kernel/random/boot_id", "/proc/self/ns/ipc", "/proc/self/ns/net"}

// ID is the same for all processes that can reach each other's memory and loopback, and for no
// others. It is empty on systems other than Linux. An error says what Linux did not tell.
func ID() (string, error) {
	if runtime.GOOS != "linux" {
		return "", nil
	}
	return of(sources)
}

func of(sources []string) (string, error) {
	h := fnv.New64a()
	for _, name := range sources {
		text, err := read(name)
		if err != nil {
			return "", err
		}
		if text == "" {
			return "", fmt.Errorf("%s is empty", name)
		}
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	return "host-" + hex.EncodeToString(h.Sum(nil)), nil
}

// read is what a file, or a link, says.
func read(name string) (string, error) {
	if strings.Contains(name, "/ns/") {
		return os.Readlink(name)
	}
	b, err := os.ReadFile(name)
	return strings.TrimSpace(string(b)), err
}
