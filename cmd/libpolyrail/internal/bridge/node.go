package bridge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// node is a node that C holds.
type node struct {
	*polyrail.Node
	maxInFlight int
}

const logLevelFlag = "log-level"

// maxSettings bounds the text of a node's settings, in bytes.
const maxSettings = 1 << 20

// parse reads settings: KEY=VALUE, one a line, where a key is the name of a flag of the command
// line. What they leave out comes from the environment and from the file that "config" names.
func parse(text string, log io.Writer) (polyrail.Config, error) {
	cfg := polyrail.DefaultConfig()
	level := slog.LevelWarn
	fs := pflag.NewFlagSet("node", pflag.ContinueOnError)
	nodeflags.Register(fs, &cfg)
	fs.String(settings.ConfigFlag, "", "")
	settings.Var(fs, &level, logLevelFlag, "LEVEL", parseLevel, slog.Level.String, "")
	if len(text) > maxSettings {
		return cfg, fmt.Errorf("%w: settings of %d bytes: there may be %d", polyrail.ErrConfig, len(text), maxSettings)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || fs.Lookup(key) == nil {
			return cfg, fmt.Errorf("%w: setting %q: want KEY=VALUE, where a key is the name of a flag of node run",
				polyrail.ErrConfig, key)
		}
		if err := settings.Set(fs, key, value); err != nil {
			return cfg, fmt.Errorf("%w: setting %s: %w", polyrail.ErrConfig, key, err)
		}
	}
	known := func(key string) bool { return fs.Lookup(key) != nil }
	if err := settings.Apply(context.Background(), fs, known); err != nil {
		return cfg, fmt.Errorf("%w: %w", polyrail.ErrConfig, err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	return cfg, nil
}

func parseLevel(s string) (level slog.Level, err error) {
	return level, level.UnmarshalText([]byte(s))
}

// OpenNode starts a node.
func (b *Bridge) OpenNode(text string, call Call) (Outcome, error) {
	cfg, err := parse(text, os.Stderr)
	if err != nil {
		return Outcome{}, err
	}
	return b.whole(call, func(ctx context.Context) (Result, error) {
		n, err := polyrail.Start(ctx, cfg)
		if err != nil {
			return Result{}, err
		}
		h, err := b.put(&node{n, cfg.MaxInFlight})
		if err != nil {
			_ = n.Close(ctx)
		}
		return Result{Handle: h}, err
	})
}

// Node is what a handle of a node stands for.
func (b *Bridge) Node(h Handle) (*polyrail.Node, error) {
	n, err := lookup[*node](b, h)
	if err != nil {
		return nil, err
	}
	return n.Node, nil
}

// CloseNode ends a node and releases its handle.
func (b *Bridge) CloseNode(h Handle, call Call) (Outcome, error) {
	n, err := lookup[*node](b, h)
	if err != nil {
		return Outcome{}, err
	}
	b.drop(h)
	return b.whole(call, func(ctx context.Context) (Result, error) { return Result{}, n.Close(ctx) })
}

// OpenEvents subscribes to a node's events.
func (b *Bridge) OpenEvents(h Handle) (Handle, error) {
	n, err := b.Node(h)
	if err != nil {
		return 0, err
	}
	m, err := newMailbox[polyrail.Event]()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Events{m, cancel}
	if h, err = b.put(e); err != nil {
		cancel()
		m.close()
		return 0, err
	}
	go e.collect(n.Events(ctx))
	return h, nil
}

// Form waits for a communicator.
func (b *Bridge) Form(h Handle, name string, size int, call Call) (Outcome, error) {
	n, err := lookup[*node](b, h)
	if err != nil {
		return Outcome{}, err
	}
	return b.whole(call, func(ctx context.Context) (Result, error) {
		c, err := n.Communicator(ctx, name, size)
		return b.made(c, n.maxInFlight, err)
	})
}

// made gives a new communicator its handle; none is 0.
func (b *Bridge) made(c *polyrail.Communicator, maxInFlight int, err error) (Result, error) {
	if err != nil || c == nil {
		return Result{}, err
	}
	h, err := b.put(&comm{Communicator: c, maxInFlight: int64(maxInFlight)})
	if err != nil {
		c.Abort(err)
	}
	return Result{Handle: h}, err
}
