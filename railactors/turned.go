package railactors

import (
	"log/slog"
	"sync"
	"time"
)

// Anybody can make connections that are turned down. So there are few lines of them in the log, in
// any minute; the others are for debugging.
const (
	maxTurnedDown        = 64
	maxTurnedDownPerHost = 8 // of one address
	turnedDownWindow     = time.Minute
)

// turnedDown counts these lines.
type turnedDown struct {
	mu    sync.Mutex
	since time.Time
	total int
	of    map[string]int // by address
}

// level is that of the next line.
func (t *turnedDown) level(host string, now time.Time) slog.Level {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.since) >= turnedDownWindow {
		t.since, t.total, t.of = now, 0, make(map[string]int)
	}
	if t.total >= maxTurnedDown || t.of[host] >= maxTurnedDownPerHost {
		return slog.LevelDebug
	}
	t.total++
	t.of[host]++
	return slog.LevelInfo
}
