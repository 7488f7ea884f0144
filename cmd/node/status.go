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

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

const statusLong = `status shows what a node is and does, and what it knows of the others: their rails, rates over
a second, communicators, and what happened last. The node was started with --http; the same is on
its page.

  --http ADDR:PORT   of that node, or http://ADDR:PORT, or https://ADDR:PORT
  --http-token       its token, if it has one; best in POLYRAIL_HTTP_TOKEN
  --http-tls on      it speaks TLS with its keys (node run --http-tls on): --tls-ca says who vouches for
                     it. With the certificate of any node, --tls-cert and --tls-key, no token is needed`

const topLong = `top shows what status does, again each second, until a signal. The node was started with --http.`

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
	fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the node's answer")
	f.common.register(fs, slog.LevelWarn)
}

func newStatus() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show what a node is and does, and its cluster", Long: statusLong,
		Example: "  node status --http 127.0.0.1:9321\n  node status --http 10.0.0.1:9321 --json | jq .Self.Rails",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return f.watch(ctx, func(now, before *polyrail.ClusterStatus) (more bool, err error) {
				if before == nil {
					return true, nil // rates need two
				}
				if f.json {
					return false, json.NewEncoder(cmd.OutOrStdout()).Encode(now)
				}
				return false, screen(cmd.OutOrStdout(), now, before)
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
			err := f.watch(cmd.Context(), func(now, before *polyrail.ClusterStatus) (bool, error) {
				if before == nil {
					return true, nil
				}
				var text strings.Builder
				text.WriteString("\x1b[H\x1b[2J") // from the top left of an empty screen
				if err := screen(&text, now, before); err != nil {
					return false, err
				}
				_, err := io.WriteString(cmd.OutOrStdout(), text.String())
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

// maxFrame bounds what a node is believed to say at once.
const maxFrame = 64 << 20

// ask has the node send frames.
func (f *watchFlags) ask(ctx context.Context) (*http.Response, error) {
	if f.addr == "" {
		return nil, usagef("--http must name the address where the node shows itself")
	}
	scheme, way := "http://", &http.Transport{DisableKeepAlives: true}
	if f.tls {
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
		return nil, fmt.Errorf("the node at %s answers %s: %s", f.addr, answer.Status, printable(strings.TrimSpace(string(text))))
	}
	return answer, nil
}

// watch calls show with each frame and one of at least half a second before it, until that wants no
// more or ctx ends.
func (f *watchFlags) watch(ctx context.Context, show func(now, before *polyrail.ClusterStatus) (more bool, err error)) error {
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
