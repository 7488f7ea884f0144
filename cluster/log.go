package cluster

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// memberlistLogger passes memberlist's log on. What matters in it comes to us as errors and events
// too, so it is all for debugging.
func memberlistLogger(l *slog.Logger) *log.Logger {
	if l == nil {
		l = slog.Default()
	}
	return log.New(logWriter{l}, "", 0)
}

type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		w.log.Debug(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}
