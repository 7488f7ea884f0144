package cluster

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/polyrail/polyrail/collective/reminder"
)

// memberlistLogger passes memberlist's log on. What matters in it comes to us as errors and events
// too, so it is all for debugging, but that it can't accept: nothing else tells of that.
func memberlistLogger(l *slog.Logger) *log.Logger {
	if l == nil {
		l = slog.Default()
	}
	return log.New(&logWriter{log: l}, "", 0)
}

// cannotAccept is before the reason in memberlist's line, which comes again each second.
const cannotAccept = "Error accepting TCP connection: "

// logWriter is called by one goroutine at a time.
type logWriter struct {
	log  *slog.Logger
	told reminder.Reminders // that it can't accept
}

func (w *logWriter) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	_, reason, deaf := strings.Cut(text, cannotAccept)
	if deaf && w.told.Due(cannotAccept, time.Now()) {
		w.log.Warn("gossip can't accept connections: other nodes can't join by this one", "error", reason)
	} else if w.log.Enabled(context.Background(), slog.LevelDebug) {
		w.log.Debug(text)
	}
	return len(p), nil
}
