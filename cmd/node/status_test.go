package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/testbed"
)

func TestStatusAndTopShowACluster(t *testing.T) {
	const token = "a token of a test"
	c, err := testbed.Start(t.Context(), testbed.Options{Nodes: 2, Rails: 2, Adapt: func(cfg *polyrail.Config) {
		cfg.HTTP = polyrail.HTTP{Addr: "127.0.0.1:0", Token: token}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Each(func(i int) error {
		return polyrail.AllReduce(t.Context(), comms[i], make([]float32, 1000), polyrail.Sum)
	}); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = execute(ctx, append(args, "--http", c.Nodes[0].HTTPAddr()), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, errs := run(t.Context(), "status", "--http-token", token)
	for _, want := range []string{"node node0 of polyrail", "rail0", "1 of 1", "node1", "train", "allreduce", "communicator formed", "50/50 %"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s: no %q in\n%s", code, errs, want, out)
		}
	}
	code, out, errs = run(t.Context(), "status", "--http-token", token, "--json")
	var s polyrail.ClusterStatus
	if err := json.Unmarshal([]byte(out), &s); code != 0 || err != nil || s.Self.Node != "node0" || len(s.Others) != 1 || len(s.Others[0].Rails) != 2 {
		t.Errorf("%d %s %v %s", code, errs, err, out)
	}
	if code, _, errs = run(t.Context(), "status"); code != exitFailure || !strings.Contains(errs, "401") || !strings.Contains(errs, "POLYRAIL_HTTP_TOKEN") {
		t.Errorf("without the token: %d %s", code, errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if code, out, errs = run(ctx, "top", "--http-token", token); code != 0 || strings.Count(out, "\x1b[H") < 1 || !strings.Contains(out, "rail1") {
		t.Errorf("top: %d %s\n%s", code, errs, out)
	}
}

// The time that they wait for is that of one answer.
func TestStatusAndTopEndWhereNobodyAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"without frames": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		for _, command := range []string{"status", "top"} {
			s := httptest.NewServer(answer)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			var errs bytes.Buffer
			code := execute(ctx, []string{command, "--http", s.URL, "--timeout", "10ms"}, io.Discard, &errs)
			if code != exitFailure || !strings.Contains(errs.String(), s.URL) || !strings.Contains(errs.String(), "silent for 10ms") {
				t.Errorf("%s, %s: exit code %d, %q", command, name, code, errs.String())
			}
			cancel()
			s.Close()
		}
	}
}

// With keys the page is sealed by them, and a certificate of the cluster stands in for the token.
func TestStatusWithKeys(t *testing.T) {
	const token = "a token of a test"
	a, other := keys.Authority{Dir: filepath.Join(t.TempDir(), "keys")}, keys.Authority{Dir: filepath.Join(t.TempDir(), "other")}
	cluster := polyrail.DefaultConfig().Cluster
	if err := errors.Join(a.Init(cluster), a.Node("looker"), other.Init(cluster), other.Node("looker")); err != nil {
		t.Fatal(err)
	}
	for _, withToken := range []bool{false, true} {
		t.Run(fmt.Sprint("token ", withToken), func(t *testing.T) {
			c, err := testbed.Start(t.Context(), testbed.Options{Nodes: 1, Rails: 1, Adapt: func(cfg *polyrail.Config) {
				if err := a.Node(cfg.Name); err != nil {
					t.Fatal(err)
				}
				cfg.TLS, cfg.GossipKeys = polyrail.TLS(a.Files(cfg.Name)), a.GossipFile()
				cfg.HTTP = polyrail.HTTP{Addr: "127.0.0.1:0", Sealed: true}
				if withToken {
					cfg.HTTP.Token = token
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			f, g := a.Files("looker"), other.Files("looker")
			const shown = "node node0 of polyrail"
			turnedDown, byToken := "certificate required", "certificate required"
			if withToken {
				turnedDown, byToken = "401", shown
			}
			for _, x := range []struct {
				want string // in what it prints
				args []string
			}{
				{shown, []string{"--http-tls", "on", "--tls-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key}},
				{byToken, []string{"--http-tls", "on", "--tls-ca", f.CA, "--http-token", token}},
				{turnedDown, []string{"--http-tls", "on", "--tls-ca", f.CA}},
				{"unknown authority", []string{"--http-tls", "on", "--tls-ca", g.CA, "--http-token", token}},
				{"needs --tls-ca", []string{"--http-tls", "on", "--tls-cert", f.Cert}},
				{"400", []string{"--http-token", token}}, // in plain text
			} {
				var out bytes.Buffer
				args := append([]string{"status", "--http", c.Nodes[0].HTTPAddr()}, x.args...)
				if code := execute(t.Context(), args, &out, &out); (code == exitOK) != (x.want == shown) || !strings.Contains(out.String(), x.want) {
					t.Errorf("%v: %d, want %q in %s", x.args, code, x.want, out.String())
				}
			}
		})
	}
}
