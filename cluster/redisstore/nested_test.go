package redisstore

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// A reply of nested arrays or maps costs the server a few bytes for each of them, and this process
// the length that it announces.
func TestNestedRepliesTakeNoMemory(t *testing.T) {
	for _, unit := range []string{"*1024\r\n", "%1024\r\n:1\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := replay(t, greeting, []byte(strings.Repeat(unit, 4000)))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errReply) {
			t.Errorf("nested %q: error %v", unit, err)
		}
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 8 {
			t.Errorf("nested %q: %d MiB were allocated for %d KiB of reply", unit, got, 4000*len(unit)>>10)
		}
	}
}
