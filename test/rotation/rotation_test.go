// Package rotation rotates all keys of a cluster of real processes while they add up, form
// communicators and lose connections: certificates, authorities and gossip's keys, by files that are
// replaced on one host after the other, as docs/security.md says. No operation may fail, no member may
// get lost, and whoever has the former keys must be out in the end.
//
// One rotation with pauses between operations belongs to the tests. make rotations runs many, without.
// Rotation in virtual time is in the root package (keyed_test.go).
package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/secure"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/railactors/transport/tcp"
	"github.com/polyrail/polyrail/test/program"
)

var rotations = flag.Int("rotations", 0, "how often all keys are rotated, with operations one after the other; 0: once, with pauses")

const (
	pause = 10 * time.Millisecond
	// between two hosts, and two steps: nodes look at gossip's keys each second.
	betweenHosts = 200 * time.Millisecond
	betweenSteps = 1500 * time.Millisecond
)

func TestMain(m *testing.M) {
	program.Live(childEnv, child)
	os.Exit(m.Run())
}

func TestNoOperationFailsWhileKeysAreRotated(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out what takes the time of a clock")
	}
	config, times := childConfig{Pause: pause}, 1
	if *rotations > 0 {
		config.Pause, times = 0, *rotations
	}
	c := newCluster(t, config)
	for range times {
		files := c.former()
		former := c.credentials(files)
		if err := c.greeted(former); err != nil {
			t.Errorf("the keys open no rail before they are rotated: %v", err)
		}
		for _, step := range []keys.Step{keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
			if err := c.authority.Rotate(step); err != nil {
				t.Fatal(err)
			}
			for i := range c.members {
				c.deliver(i)
				<-time.After(betweenHosts)
			}
			<-time.After(betweenSteps)
		}
		c.believe(files)
		if err := c.greeted(former); err == nil || !strings.Contains(err.Error(), "does not believe this one") {
			t.Errorf("with the former keys: %v", err)
		}
	}
	for _, m := range c.members {
		r := m.end()
		t.Logf("%s: %d operations, %d communicators, connections made anew %v", m.name, r.Operations, r.Formed, r.Reconnects)
		if len(r.Failures) > 0 || r.Members != ranks || r.Formed < 2*times || r.Operations < 10*times {
			t.Errorf("%s: %+v", m.name, r)
		}
		for rail, n := range r.Reconnects {
			if n == 0 {
				t.Errorf("%s: rail %d was never connected anew", m.name, rail)
			}
		}
	}
}

// cluster is the members, each with the files of a host of its own.
type cluster struct {
	t         *testing.T
	dir       string
	authority keys.Authority
	members   []*member
}

// member is a process.
type member struct {
	*exec.Cmd
	t     *testing.T
	name  string
	first report
	stdin io.Closer
	out   *json.Decoder
	said  *os.File // its standard error
	ended bool
}

func newCluster(t *testing.T, config childConfig) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	c.authority = keys.Authority{Dir: filepath.Join(c.dir, "keys")}
	if err := errors.Join(c.authority.Init(polyrail.DefaultConfig().Cluster), c.authority.Node("observer")); err != nil {
		t.Fatal(err)
	}
	for i := range ranks {
		config.Name = fmt.Sprint("host", i)
		if err := errors.Join(c.authority.Node(config.Name), os.Mkdir(filepath.Join(c.dir, config.Name), 0o700)); err != nil {
			t.Fatal(err)
		}
		m := &member{t: t, name: config.Name}
		c.members = append(c.members, m)
		config.TLS, config.Gossip = c.deliver(i)
		m.start(c.dir, config)
		config.Join = []string{c.members[0].first.Gossip}
	}
	return c
}

// deliver copies a node's files to its host, each as a whole.
func (c *cluster) deliver(i int) (polyrail.TLS, string) {
	c.t.Helper()
	name := c.members[i].name
	f, gossip := polyrail.TLS(c.authority.Files(name)), c.authority.GossipFile()
	for _, file := range []*string{&f.CA, &f.Key, &f.Cert, &gossip} {
		text, err := os.ReadFile(*file)
		to := filepath.Join(c.dir, name, filepath.Base(*file))
		*file = to
		if err := errors.Join(err, os.WriteFile(to+".new", text, 0o600), os.Rename(to+".new", to)); err != nil {
			c.t.Fatal(err)
		}
	}
	return f, gossip
}

// former copies the files of a node that does not run, as they are now.
func (c *cluster) former() keys.Files {
	c.t.Helper()
	f, dir := c.authority.Files("observer"), c.t.TempDir()
	for _, file := range []*string{&f.Cert, &f.Key, &f.CA} {
		text, err := os.ReadFile(*file)
		*file = filepath.Join(dir, filepath.Base(*file))
		if err := errors.Join(err, os.WriteFile(*file, text, 0o600)); err != nil {
			c.t.Fatal(err)
		}
	}
	return f
}

// believe has former files believe the authority that there is now: what is left to say is the others'.
func (c *cluster) believe(f keys.Files) {
	c.t.Helper()
	former, err := os.ReadFile(f.CA)
	now, e := os.ReadFile(c.authority.Files("observer").CA)
	if err := errors.Join(err, e, os.WriteFile(f.CA, append(former, now...), 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) credentials(f keys.Files) func() *keys.Credentials {
	c.t.Helper()
	id := keys.Identity{Cluster: polyrail.DefaultConfig().Cluster, Node: "observer"}
	s, err := keys.NewSource(f, id, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	return s.Current
}

// greeted makes a connection to each rail of each member with some keys, and returns what went wrong.
func (c *cluster) greeted(with func() *keys.Credentials) error {
	c.t.Helper()
	d, err := secure.Wrap(tcp.New(tcp.Options{}), with).Open("127.0.0.1")
	if err != nil {
		c.t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, m := range c.members {
		for _, addr := range m.first.Rails {
			conn, e := d.Dial(ctx, addr)
			if e != nil {
				c.t.Fatal(e)
			}
			_, e = conn.ReadFull(nil) // the handshake
			err = errors.Join(err, e)
			conn.Close()
		}
	}
	return err
}

// start runs a member and hears where it is.
func (m *member) start(dir string, config childConfig) {
	m.t.Helper()
	m.Cmd = exec.Command(os.Args[0])
	err := program.Tell(m.Cmd, childEnv, config)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.said, err = os.Create(filepath.Join(dir, m.name+".log")); err != nil {
		m.t.Fatal(err)
	}
	m.Stderr = m.said
	if m.stdin, err = m.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	out, err := m.StdoutPipe()
	if err == nil {
		err = m.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if !m.ended {
			_ = m.Process.Kill() // it may have ended
			_ = m.Wait()
		}
		m.said.Close()
	})
	m.out = json.NewDecoder(out)
	if err := m.out.Decode(&m.first); err != nil {
		m.t.Fatalf("%s: %v: %s", m.name, err, m.errors())
	}
}

// end ends a member, and returns what it has seen. The first one that ends ends the others' work.
func (m *member) end() (r report) {
	m.t.Helper()
	m.stdin.Close()
	program.Limit(m.Cmd, 3*patience) // its own limits come first, and say what failed
	if err := m.out.Decode(&r); err != nil {
		m.t.Fatalf("%s: %v: %s", m.name, err, m.errors())
	}
	m.ended = true
	if err := m.Wait(); err != nil {
		m.t.Errorf("%s: %v", m.name, err)
	}
	if len(r.Failures) > 0 {
		m.t.Logf("%s says: %s", m.name, m.errors())
	}
	return r
}

func (m *member) errors() string {
	text, err := os.ReadFile(m.said.Name())
	if err != nil {
		m.t.Error(err)
	}
	return string(text)
}
