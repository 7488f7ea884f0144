package keys_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/bubble"
)

func authority(t *testing.T, cluster string, nodes ...string) keys.Authority {
	t.Helper()
	a := keys.Authority{Dir: filepath.Join(t.TempDir(), "keys")}
	err := a.Init(cluster)
	for _, n := range nodes {
		err = errors.Join(err, a.Node(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func load(t *testing.T, a keys.Authority, node string) *keys.Credentials {
	t.Helper()
	c, err := a.Files(node).Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnAuthorityMakesKeysThatOnlyItsOwnerReads(t *testing.T) {
	a := authority(t, "prod", "a", "10.0.0.7:x")
	if c := load(t, a, "10.0.0.7:x"); c.String() != "polyrail://prod/10.0.0.7:x" {
		t.Errorf("it is of %s", c)
	}
	entries, err := os.ReadDir(a.Dir)
	if err != nil || len(entries) != 7 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		if i, err := e.Info(); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), i.Mode(), err)
		}
	}
	if k, err := keys.Gossip(a.GossipFile()); err != nil || len(k) != 1 || len(k[0]) != 32 {
		t.Errorf("gossip's keys: %d, %v", len(k), err)
	}
	before, _ := os.ReadFile(filepath.Join(a.Dir, "ca-key.pem"))
	if err := a.Init("prod"); !errors.Is(err, keys.ErrKeys) {
		t.Errorf("made a second authority: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(a.Dir, "ca-key.pem")); !bytes.Equal(before, after) {
		t.Error("the key was replaced")
	}
}

func TestNamesThatFitNoCertificateAreTurnedDown(t *testing.T) {
	a := authority(t, "prod")
	for _, node := range []string{"", "a/b", "../x", ".x", "ca", "a b", strings.Repeat("x", 129)} {
		if err := a.Node(node); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("node %q: %v", node, err)
		}
	}
	for _, cluster := range []string{"", "a b", "a/b", "a?b", "ä", strings.Repeat("x", 129)} {
		if err := (keys.Authority{Dir: t.TempDir()}).Init(cluster); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("cluster %q: %v", cluster, err)
		}
	}
}

// Names of hosts are in a certificate until others are given.
func TestACertificateKeepsTheNamesOfItsHost(t *testing.T) {
	a := authority(t, "prod", "a")
	check := func(host string, want bool) {
		t.Helper()
		text, err := os.ReadFile(a.Files("a").Cert)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.VerifyHostname(host) == nil; got != want {
			t.Errorf("%s is a host of it: %v", host, got)
		}
		load(t, a, "a")
	}
	check("a.example.org", false)
	if err := a.Node("a", "a.example.org", "10.0.0.1", "::1"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []keys.Step{"", keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
		if step != "" {
			if err := a.Rotate(step); err != nil {
				t.Fatal(err)
			}
		}
		for _, host := range []string{"a.example.org", "10.0.0.1", "::1"} {
			check(host, true)
		}
	}
	if err := a.Node("a", "b.example.org"); err != nil {
		t.Fatal(err)
	}
	check("a.example.org", false)
	for _, host := range []string{"", "a b", "a/b"} {
		if err := a.Node("a", host); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

func TestFilesThatDoNotBelongTogetherAreNamed(t *testing.T) {
	a, other := authority(t, "prod", "a", "b"), authority(t, "prod", "a")
	f := a.Files("a")
	for want, files := range map[string]keys.Files{
		"no such file":               {Cert: f.Cert, Key: f.Key + "x", CA: f.CA},
		"private key does not match": {Cert: f.Cert, Key: a.Files("b").Key, CA: f.CA},
		"unknown authority":          {Cert: f.Cert, Key: f.Key, CA: other.Files("a").CA},
		"no certificate in it":       {Cert: f.Cert, Key: f.Key, CA: f.Key + "x"},
		"with 0 names polyrail://":   {Cert: f.CA, Key: filepath.Join(a.Dir, "ca-key.pem"), CA: f.CA},
		"no file of at most":         {Cert: a.Dir, Key: f.Key, CA: f.CA},
	} {
		if want == "no certificate in it" {
			if err := os.WriteFile(files.CA, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := files.Load(); !errors.Is(err, keys.ErrKeys) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if want == "no certificate in it" {
			os.Remove(files.CA)
		}
	}
}

func TestStepsOfARotationFollowEachOther(t *testing.T) {
	a := authority(t, "prod", "a", "b")
	former := load(t, a, "a")
	message := []byte("message")
	signature, chain, err := former.Sign(message)
	if err != nil {
		t.Fatal(err)
	}
	gossip := func() []string {
		all, err := keys.Gossip(a.GossipFile())
		if err != nil {
			t.Fatal(err)
		}
		var s []string
		for _, k := range all {
			s = append(s, string(k))
		}
		return s
	}
	first := gossip()[0]
	believes := func(node string) bool {
		_, err := load(t, a, node).Check(message, signature, chain)
		return err == nil
	}
	for _, s := range []struct {
		step     keys.Step
		turned   keys.Step // down
		gossip   int
		seals    bool // the first key
		believed bool
	}{
		{keys.RotateAdd, keys.RotateUse, 2, true, true},
		{keys.RotateUse, keys.RotateDrop, 2, false, true},
		{keys.RotateDrop, keys.RotateAdd, 1, false, false},
	} {
		if err := a.Rotate(s.turned); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("%s before %s: %v", s.turned, s.step, err)
		}
		if err := a.Rotate(s.step); err != nil {
			t.Fatal(err)
		}
		if g := gossip(); len(g) != s.gossip || (g[0] == first) != s.seals {
			t.Errorf("%s: %d keys of gossip, the first one seals: %v", s.step, len(g), g[0] == first)
		}
		if got := believes("b"); got != s.believed {
			t.Errorf("%s: the former certificate is believed: %v", s.step, got)
		}
	}
	if err := a.Node("c"); err != nil {
		t.Error(err)
	}
}

func TestASourceFollowsItsFilesAndKeepsWhatIsInOrder(t *testing.T) {
	a, other := authority(t, "prod", "a", "b"), authority(t, "prod", "a")
	if _, err := keys.NewSource(a.Files("b"), keys.Identity{Cluster: "prod", Node: "a"}, slog.Default()); err == nil ||
		!strings.Contains(err.Error(), "is of polyrail://prod/b, this node is polyrail://prod/a") {
		t.Errorf("another node's certificate: %v", err)
	}
	var said bytes.Buffer
	f := a.Files("a")
	s, err := keys.NewSource(f, keys.Identity{Cluster: "prod", Node: "a"}, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	first := s.Current()
	good, _ := os.ReadFile(f.Key)
	wrong, _ := os.ReadFile(other.Files("a").Key)
	write := func(b []byte) {
		if err := os.WriteFile(f.Key, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong)
	for range 3 {
		if s.Current() != first {
			t.Error("half of a replacement was taken")
		}
	}
	if n := strings.Count(said.String(), "can't be used"); n != 1 {
		t.Errorf("it was said %d times: %s", n, said.String())
	}
	write(good)
	if err := a.Node("a"); err != nil {
		t.Fatal(err)
	}
	if s.Current() == first {
		t.Error("the replacement was not taken")
	}
}

func TestASourceWarnsOfTheEndOfItsCertificate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		a := authority(t, "prod", "a")
		var said bytes.Buffer
		s, err := keys.NewSource(a.Files("a"), keys.Identity{Cluster: "prod", Node: "a"},
			slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(left time.Duration, warnings int) {
			t.Helper()
			<-time.After(time.Until(s.Current().Until().Add(-left)))
			for range 3 {
				s.Current()
			}
			if n := strings.Count(said.String(), "ends soon"); n != warnings {
				t.Errorf("%v before the end: %d warnings, want %d: %s", left, n, warnings, said.String())
			}
		}
		expect(15*day, 0)
		expect(13*day, 1)
		expect(12*day+time.Hour, 1)
		expect(11*day, 2)
		if err := a.Node("a"); err != nil {
			t.Fatal(err)
		}
		expect(100*day, 2)
	})
}

func TestASignatureIsOfOneMessageAndOneNode(t *testing.T) {
	a, other := authority(t, "prod", "a", "b"), authority(t, "prod", "a")
	message := []byte("message")
	signature, chain, err := load(t, a, "a").Sign(message)
	if err != nil {
		t.Fatal(err)
	}
	b := load(t, a, "b")
	if id, err := b.Check(message, signature, chain); err != nil || id.Node != "a" {
		t.Fatalf("%v, %v", id, err)
	}
	theirs, theirChain, err := load(t, other, "a").Sign(message)
	if err != nil {
		t.Fatal(err)
	}
	_, ownChain, _ := b.Sign(message)
	for name, c := range map[string]struct {
		message, signature []byte
		chain              [][]byte
	}{
		"another message":   {[]byte("messagf"), signature, chain},
		"another node":      {message, signature, ownChain},
		"another authority": {message, theirs, theirChain},
		"no certificate":    {message, signature, nil},
		"garbage":           {message, signature, [][]byte{{1, 2, 3}}},
		"many certificates": {message, signature, [][]byte{chain[0], chain[0], chain[0], chain[0], chain[0]}},
		"no signature":      {message, nil, chain},
	} {
		if _, err := b.Check(c.message, c.signature, c.chain); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGossipKeysAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gossip.key")
	k := "AAAAAAAAAAAAAAAAAAAAAA=="
	for text, ok := range map[string]bool{
		k + "\n": true, k + "\n" + k: true, "": false, "secret": false, "AAAA": false, strings.Repeat(k+"\n", 9): false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Gossip(file); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What a node shows of itself over TLS: who may look is as on rails.
func TestWhoLooksAtANodeIsVerified(t *testing.T) {
	a, other := authority(t, "prod", "a", "b"), authority(t, "prod", "b")
	s, err := keys.NewSource(a.Files("a"), keys.Identity{Cluster: "prod", Node: "a"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	look := func(with keys.Files, required bool) error {
		client, err := with.DialHTTP()
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			err := tls.Server(far, s.ServeHTTP(required)).Handshake()
			far.Close()
			done <- err
		}()
		if err = tls.Client(near, client).Handshake(); err == nil {
			_, _ = io.Copy(io.Discard, near) // the server's verdict comes after the client's
		}
		near.Close()
		return errors.Join(err, <-done)
	}
	nobody := keys.Files{CA: a.Files("a").CA}
	mixed := other.Files("b") // it believes the node, which does not believe it
	mixed.CA = nobody.CA
	for what, x := range map[string]struct {
		err  error
		want string
	}{
		"a node":                        {look(a.Files("b"), true), ""},
		"nobody":                        {look(nobody, false), ""},
		"nobody, and that is not taken": {look(nobody, true), "certificate"},
		"one who believes others":       {look(keys.Files{CA: other.Files("b").CA}, false), "unknown authority"},
	} {
		if (x.err == nil) != (x.want == "") || x.err != nil && !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", what, x.err, x.want)
		}
	}
	if _, err := mixed.DialHTTP(); !errors.Is(err, keys.ErrKeys) {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	for _, f := range []keys.Files{{}, {CA: nobody.CA, Key: "x"}, {Cert: "x", Key: "x"}, {CA: "no such file"}} {
		if _, err := f.DialHTTP(); !errors.Is(err, keys.ErrKeys) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// A step that fails half-way can be made again, and what it has done by then harms nobody.
func TestARotationGoesOnAfterAStepThatFailed(t *testing.T) {
	a := keys.Authority{Dir: t.TempDir()}
	nodes := []string{"a", "b", "c"}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	load := func(when string) {
		t.Helper()
		for _, n := range nodes {
			_, err := a.Files(n).Load()
			must(when+": node "+n, err)
		}
	}
	must("init", a.Init("x"))
	for _, n := range nodes {
		must(n, a.Node(n))
	}
	gossip, err := os.ReadFile(filepath.Join(a.Dir, "gossip.key"))
	must("gossip", err)
	must("add", a.Rotate(keys.RotateAdd))
	cert := filepath.Join(a.Dir, "b.pem")
	must("hide", os.Rename(cert, cert+".off"))
	must("hide", os.Mkdir(cert, 0o700))
	if err := a.Rotate(keys.RotateUse); err == nil {
		t.Fatal("a certificate that can't be read is none that can't be made anew")
	}
	must("show", os.Remove(cert))
	must("show", os.Rename(cert+".off", cert))
	load("half-way")
	must("use, again", a.Rotate(keys.RotateUse))
	load("used")
	must("drop", a.Rotate(keys.RotateDrop))
	load("dropped")
	now, err := os.ReadFile(filepath.Join(a.Dir, "gossip.key"))
	must("gossip", err)
	if bytes.Contains(now, bytes.TrimSpace(gossip)) {
		t.Error("the former key of gossip is still there")
	}
}
