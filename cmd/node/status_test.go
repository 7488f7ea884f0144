package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
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
	if code, _, errs = run(t.Context(), "status"); code != exitFailure || !strings.Contains(errs, "401") {
		t.Errorf("without the token: %d %s", code, errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	if code, out, errs = run(ctx, "top", "--http-token", token); code != 0 || strings.Count(out, "\x1b[H") < 1 || !strings.Contains(out, "rail1") {
		t.Errorf("top: %d %s\n%s", code, errs, out)
	}
}
