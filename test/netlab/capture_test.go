//go:build linux

package netlab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/program"
)

// captureEnv makes this test's program a rank that sends a known text; its value is a captureConfig.
const captureEnv = "POLYRAIL_NETLAB_CAPTURE"

type captureConfig struct {
	Name, Bind, Join string
	TLS              polyrail.TLS
	GossipKeys       string
}

// What is looked for in the packets: payload, and a communicator's name, which gossip carries.
const (
	knownPayload = "payload that everybody may know; "
	knownName    = "communicator-that-everybody-may-know"
)

func captureChild(c captureConfig) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Host, cfg.Bind, cfg.Join = c.Name, c.Name, c.Bind, []string{c.Join}
	cfg.TLS, cfg.GossipKeys = c.TLS, c.GossipKeys
	cfg.Rails = []polyrail.Rail{{Name: "rail1", Protocol: "tcp", Device: NIC(1)}}
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	comm, err := node.Communicator(ctx, knownName, 2)
	if err != nil {
		return err
	}
	for _, times := range []int{1, 1000, 30_000} {
		text := bytes.Repeat([]byte(knownPayload), times)
		buf := make([]byte, len(text))
		if comm.Rank() == 0 {
			copy(buf, text)
		}
		if err := polyrail.Broadcast(ctx, comm, buf, 0); err != nil {
			return err
		}
		if !bytes.Equal(buf, text) {
			return errors.New("another text arrived")
		}
	}
	return errors.Join(comm.Close(ctx), node.Close(ctx))
}

// captured runs two ranks and returns what passed host 1's NICs meanwhile.
func captured(t *testing.T, b *Bed, set func(c *captureConfig)) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "packets")
	dump := b.Command(1, "tcpdump", "-i", "any", "-U", "-s", "0", "-B", "16384", "-w", file, "-Z", "root")
	errs, err := dump.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dump.Start(); err != nil {
		t.Fatal(err)
	}
	program.Limit(dump, 3*patience)
	said := bufio.NewScanner(errs)
	for said.Scan() && !strings.Contains(said.Text(), "listening on") {
	}
	var ranks []*exec.Cmd
	for host := 1; host <= 2; host++ {
		c := captureConfig{Name: nameOf(host), Bind: b.Addr(host, 0) + ":7946", Join: b.Addr(1, 0) + ":7946"}
		set(&c)
		cmd := b.Command(host, os.Args[0])
		cmd.Stderr = new(bytes.Buffer)
		err := program.Tell(cmd, captureEnv, c)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		program.Limit(cmd, 2*patience)
		ranks = append(ranks, cmd)
	}
	for i, cmd := range ranks {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", i, err, cmd.Stderr)
		}
	}
	if err := dump.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for said.Scan() {
	}
	if err := dump.Wait(); err != nil {
		t.Fatal(err)
	}
	packets, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return packets
}

// Nothing of what ranks send, and of what nodes agree on, is in a capture of rails and gossip. Without
// keys all of it is: the capture sees what there is to see.
func TestNothingIsReadInACaptureOfSealedRailsAndGossip(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out whole programs on a bed")
	}
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("SKIPPED: a capture of packets needs tcpdump")
	}
	b := Up(t, Config{Hosts: 2, Rails: []Rate{0}, Management: true})
	a := keys.Authority{Dir: filepath.Join(t.TempDir(), "keys")}
	if err := errors.Join(a.Init(polyrail.DefaultConfig().Cluster), a.Node(nameOf(1)), a.Node(nameOf(2))); err != nil {
		t.Fatal(err)
	}
	plain := captured(t, b, func(*captureConfig) {})
	sealed := captured(t, b, func(c *captureConfig) {
		c.TLS, c.GossipKeys = polyrail.TLS(a.Files(c.Name)), a.GossipFile()
	})
	for _, text := range []string{knownPayload, knownName} {
		in, hidden := bytes.Count(plain, []byte(text)), bytes.Count(sealed, []byte(text))
		t.Logf("%q: %d times in %d bytes of plain text, %d times in %d sealed bytes", text, in, len(plain), hidden, len(sealed))
		if in == 0 || hidden > 0 {
			t.Error("that is wrong")
		}
	}
	if len(sealed) < len(knownPayload)*10_000 { // some packets may be lost to a capture
		t.Error("the capture lacks the payload")
	}
}
