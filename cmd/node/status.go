package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

const statusLong = `status shows what a node is and does, and what it knows of the others: rails and their
rates over a second, operations, communicators and their trees, and what happened last. The
node must run with --http; its page shows the same, and more.

--http may begin with http:// or https://. A token is best given as POLYRAIL_HTTP_TOKEN: other
users of the host see command lines. With --http-tls on the node speaks TLS with its keys (as node
run --http-tls on does): --tls-ca says who vouches for it. With the certificate of any node,
--tls-cert and --tls-key, no token is needed.`

const topLong = `top shows what status does, again each second, until a signal. Of nodes that the terminal has
no room for it counts those that are well, and lists the others first.`

// watchFlags are where a node is looked at.
type watchFlags struct {
	common
	addr, token string
	tls         bool
	keys        keys.Files
	json        bool
	timeout     time.Duration
}

func (f *watchFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", "", "`ADDR:PORT` where the node shows itself")
	fs.StringVar(&f.token, "http-token", "", "`TOKEN` of that address")
	settings.Var(fs, &f.tls, "http-tls", "on|off", settings.ParseSwitch, settings.FormatSwitch,
		"that address speaks TLS with the node's keys")
	fs.StringVar(&f.keys.CA, "tls-ca", "", "`FILE` with the authorities that vouch for the node")
	fs.StringVar(&f.keys.Cert, "tls-cert", "", "`FILE` with a certificate to show in place of a token")
	fs.StringVar(&f.keys.Key, "tls-key", "", "`FILE` with its private key")
	fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the node's answer, and for each that follows")
	f.common.register(fs, slog.LevelWarn)
}

// frameEvery is the time between two frames of a node where nothing happens.
const frameEvery = time.Second

// patience is how many frames status waits for two answers of each other node.
const patience = 4

func newStatus() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show what a node is and does, and its cluster", Long: statusLong,
		Example: "  node status --http 127.0.0.1:9321\n  node status --http 10.0.0.1:9321 --json | jq .Self.Rails",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sent, frames := make(rates), 0
			return f.watch(cmd.Context(), func(now, before *polyrail.ClusterStatus) (more bool, err error) {
				sent.see(now)
				if frames++; frames < 2 || frames < patience && !sent.complete(now) {
					return true, nil // rates need two
				}
				if f.json {
					return false, json.NewEncoder(cmd.OutOrStdout()).Encode(now)
				}
				return false, screen(cmd.OutOrStdout(), now, before, sent, window{})
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print everything as JSON")
	return cmd
}

func newTop() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use: "top", Short: "Show what a node and its cluster do, again and again", Long: topLong,
		Example: "  node top --http 127.0.0.1:9321",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sent := make(rates)
			err := f.watch(cmd.Context(), func(now, before *polyrail.ClusterStatus) (bool, error) {
				sent.see(now)
				if before == nil {
					return true, nil
				}
				var text strings.Builder
				if err := screen(&text, now, before, sent, windowOf(cmd.OutOrStdout())); err != nil {
					return false, err
				}
				// From the top left on, over what stands there: an emptied screen would flicker.
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "\x1b[H%s\x1b[J", strings.ReplaceAll(text.String(), "\n", "\x1b[K\n"))
				return true, err
			})
			if cmd.Context().Err() != nil {
				return nil // the signal is how it ends
			}
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// windowOf is the size of a terminal; without limits for whatever is none.
func windowOf(w io.Writer) (fit window) {
	if fd, ok := terminal(w); ok {
		if columns, lines, err := term.GetSize(fd); err == nil {
			fit = window{lines, columns}
		}
	}
	return fit
}

// maxFrame bounds what a node is believed to say at once.
const maxFrame = 64 << 20

// ask has the node send frames.
func (f *watchFlags) ask(ctx context.Context) (*http.Response, error) {
	if f.addr == "" {
		return nil, usagef("--http must name the address where the node shows itself")
	}
	if f.timeout <= 0 {
		return nil, usagef("--timeout %v must be positive", f.timeout)
	}
	scheme, way := "http://", &http.Transport{DisableKeepAlives: true}
	if f.tls {
		if !f.keys.CanDialHTTP() {
			return nil, usagef("--http-tls on needs --tls-ca, and --tls-cert and --tls-key both or neither")
		}
		var err error
		if way.TLSClientConfig, err = f.keys.DialHTTP(); err != nil {
			return nil, err
		}
		scheme = "https://"
	}
	url := f.addr
	if !strings.Contains(url, "://") {
		url = scheme + url
	}
	if f.tls && !strings.HasPrefix(url, scheme) {
		return nil, usagef("--http %q is not TLS, which --http-tls on asks for", f.addr)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/api/live", nil)
	if err != nil {
		return nil, usagef("--http %q: %w", f.addr, err)
	}
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	answer, err := (&http.Client{Transport: way}).Do(r)
	if err != nil {
		return nil, fmt.Errorf("no answer of the node: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		hint := ""
		if answer.StatusCode == http.StatusUnauthorized {
			hint = " (its token is to be in " + settings.EnvName("http-token") + ")"
		}
		return nil, fmt.Errorf("the node at %s answers %s: %s%s", f.addr, answer.Status,
			strings.TrimSpace(string(text)), hint)
	}
	return answer, nil
}

// watch calls show with each frame and one of at least half a second before it, until that wants no
// more, the node is silent for too long or ctx ends.
func (f *watchFlags) watch(ctx context.Context, show func(now, before *polyrail.ClusterStatus) (more bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(f.timeout, func() { cancel(fmt.Errorf("silent for %v: %w", f.timeout, context.DeadlineExceeded)) })
	defer silence.Stop()
	answer, err := f.ask(ctx)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxFrame)
	var before *polyrail.ClusterStatus
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		now := new(polyrail.ClusterStatus)
		if err := json.Unmarshal([]byte(text), now); err != nil {
			return fmt.Errorf("the node at %s says what this version does not understand: %w", f.addr, err)
		}
		silence.Reset(f.timeout + frameEvery)
		if before != nil && now.Self.Time.Sub(before.Self.Time) < 500*time.Millisecond {
			continue // after an event; the next one comes soon
		}
		if more, err := show(now, before); !more || err != nil {
			return err
		}
		before = now
	}
	err = lines.Err()
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("the node at %s: %w", f.addr, context.Cause(ctx))
	}
	if err == nil {
		err = errors.New("it has ended")
	}
	return fmt.Errorf("the node at %s: %w", f.addr, err)
}
