package polyrail_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/bubble"
	"github.com/polyrail/polyrail/test/testbed"
)

// underKeys has inBed give all nodes keys.
var underKeys bool

// withKeys gives each node that is configured keys of one authority, of the time at which the first one
// is: certificates know about virtual time.
func withKeys(t *testing.T, adapt func(*Config)) (func(*Config), keys.Authority) {
	a := keys.Authority{Dir: filepath.Join(t.TempDir(), "keys")}
	made := false
	return func(c *Config) {
		if adapt != nil {
			adapt(c)
		}
		var err error
		if !made {
			err = a.Init(c.Cluster)
			made = true
		}
		if err := errors.Join(err, a.Node(c.Name)); err != nil {
			t.Fatal(err)
		}
		c.TLS, c.GossipKeys = TLS(a.Files(c.Name)), a.GossipFile()
	}, a
}

// Failover, cuts, re-admission, losses and trees are under keys what they are without.
func TestTheSameUnderKeys(t *testing.T) {
	underKeys = true
	defer func() { underKeys = false }()
	for name, test := range map[string]func(t *testing.T){
		"BothRailsCarryTheirShare":                 TestBothRailsCarryTheirShare,
		"MismatchIsAnErrorThatNamesBothSides":      TestMismatchIsAnErrorThatNamesBothSides,
		"LostRankIsNamedWithinTheRankTimeout":      TestLostRankIsNamedWithinTheRankTimeout,
		"ARankThatStopsInTheMiddleOfAFrameIsNamed": TestARankThatStopsInTheMiddleOfAFrameIsNamed,
		"RailsThatAreCutInTheMiddleOfMessages":     TestRailsThatAreCutInTheMiddleOfMessages,
		"ARailIsBackAfterFlaps": func(t *testing.T) {
			returns(t, 3, 3, 300*time.Millisecond, "cut", "silence", "unplug")
		},
		"SurvivorsShrinkAndGoOnWithRightSums": TestSurvivorsShrinkAndGoOnWithRightSums,
		"AnAggregationNodeDies":               TestAnAggregationNodeDies,
	} {
		if brief() && name != "ARailIsBackAfterFlaps" {
			continue
		}
		t.Run(name, test)
	}
}

// Keys of rails and of gossip are rotated while operations run and rails break. No operation fails, no
// member is lost, and afterwards the former keys open nothing.
func TestKeysAreRotatedUnderLoad(t *testing.T) {
	adapt, a := withKeys(t, nil)
	bubble.Nodes(t, func(t *testing.T) {
		b := start(t, testbed.Options{Nodes: 3, Rails: 2, Adapt: adapt})
		comms := b.form("train")
		former := b.Configs[0]
		former.Name, former.Bind = "late", "10.0.9.9:7946"
		if err := a.Node("late"); err != nil {
			t.Fatal(err)
		}
		former.TLS, former.GossipKeys = copies(t, a, "late")
		for _, step := range []keys.Step{keys.RotateAdd, keys.RotateUse, keys.RotateDrop} {
			if err := a.Rotate(step); err != nil {
				t.Fatal(err)
			}
			for i := range 8 { // some 4 s: nodes look at gossip's keys each second
				device := testbed.Device(i % 2)
				b.Rails.Cut("node1", device)
				b.carried(comms)
				b.Rails.Heal("node1", device)
				<-time.After(500 * time.Millisecond)
				b.carried(comms)
			}
			b.form(fmt.Sprint("after ", step)) // what is agreed on goes over gossip
		}
		for i, n := range b.Nodes {
			if len(n.Members()) != 3 {
				t.Errorf("node %d knows %d members", i, len(n.Members()))
			}
			for _, r := range n.Rails() {
				if i == 1 && r.Reconnects == 0 {
					t.Errorf("rail %s was not connected anew", r.Name)
				}
			}
		}
		late, err := b.Join(t.Context(), former)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if c, err := late.Communicator(ctx, "late", 2); err == nil || len(late.Members()) != 1 {
			t.Errorf("a node with the former keys is in %v, with %d members", c, len(late.Members()))
		}
		closing, cancelClose := context.WithTimeout(context.Background(), time.Second)
		defer cancelClose()
		_ = late.Close(closing) // it has nobody to say farewell to
		b.close()
		<-time.After(time.Minute)
	})
}

// copies are the files of a node as they are now.
func copies(t *testing.T, a keys.Authority, node string) (TLS, string) {
	t.Helper()
	dir := t.TempDir()
	f := TLS(a.Files(node))
	gossip := a.GossipFile()
	for _, name := range []*string{&f.Cert, &f.Key, &f.CA, &gossip} {
		text, err := os.ReadFile(*name)
		*name = filepath.Join(dir, filepath.Base(*name))
		if err := errors.Join(err, os.WriteFile(*name, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return f, gossip
}

func TestANodeWithoutKeysFindsNobodyAndIsToldWhy(t *testing.T) {
	for name, c := range map[string]struct {
		stranger func(c *Config, other keys.Authority)
		want     string
	}{
		"no keys": {func(c *Config, _ keys.Authority) { c.TLS, c.GossipKeys = TLS{}, "" }, "keys of gossip"},
		"keys of another authority": {func(c *Config, other keys.Authority) {
			c.TLS, c.GossipKeys = TLS(other.Files(c.Name)), other.GossipFile()
		}, "keys of gossip"},
	} {
		t.Run(name, func(t *testing.T) {
			adapt, _ := withKeys(t, nil)
			other := keys.Authority{Dir: filepath.Join(t.TempDir(), "other")}
			bubble.Nodes(t, func(t *testing.T) {
				b := start(t, testbed.Options{Nodes: 2, Rails: 1, Adapt: adapt})
				cfg := b.Configs[0]
				cfg.Name, cfg.Bind = "stranger", "10.0.9.9:7946"
				if err := errors.Join(other.Init(cfg.Cluster), other.Node(cfg.Name)); err != nil {
					t.Fatal(err)
				}
				c.stranger(&cfg, other)
				n, err := b.Join(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err = n.Communicator(ctx, "train", 2)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				closing, cancelClose := context.WithTimeout(context.Background(), time.Second)
				defer cancelClose()
				_ = n.Close(closing) // it has nobody to say farewell to
				for i, m := range b.Nodes {
					if len(m.Members()) != 2 {
						t.Errorf("node %d has let it in", i)
					}
				}
				b.carried(b.form("train"))
				b.close()
				<-time.After(time.Minute)
			})
		})
	}
}

// Gossip has the same keys, so each knows of the other one, and hears no call of its.
func TestAMemberWhoseCertificateDoesNotCountIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		differ func(c *Config, other keys.Authority)
		want   [2]string // in the error of each node
	}{
		"of another authority": {func(c *Config, other keys.Authority) { c.TLS = TLS(other.Files(c.Name)) },
			[2]string{`"node1" is refused: keys: x509: certificate signed by unknown authority`,
				`"node0" is refused: keys: x509: certificate signed by unknown authority`}},
		"none": {func(c *Config, _ keys.Authority) { c.TLS, c.Plaintext = TLS{}, []string{c.Rails[0].Name} },
			[2]string{`"node1" is refused: it is not signed`, `"node0" is refused: it is signed, and this node has no keys`}},
	} {
		t.Run(name, func(t *testing.T) {
			other := keys.Authority{Dir: filepath.Join(t.TempDir(), "other")}
			with, _ := withKeys(t, nil)
			adapt := func(cfg *Config) {
				if with(cfg); cfg.Name != testbed.NodeName(1) {
					return
				}
				if err := errors.Join(other.Init(cfg.Cluster), other.Node(cfg.Name)); err != nil {
					t.Fatal(err)
				}
				c.differ(cfg, other)
			}
			inBed(t, 2, 1, adapt, func(b *bed) {
				for i, err := range b.failures(func(i int) error {
					ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
					defer cancel()
					_, err := b.Nodes[i].Communicator(ctx, "train", 2)
					return err
				}) {
					if !errors.Is(err, ErrView) || !strings.Contains(err.Error(), c.want[i]) {
						t.Errorf("node %d: %v", i, err)
					}
				}
			})
		})
	}
}

func TestKeysThatDoNotFitAreFaultsOfTheConfiguration(t *testing.T) {
	a := keys.Authority{Dir: filepath.Join(t.TempDir(), "keys")}
	if err := errors.Join(a.Init("prod"), a.Node("a"), a.Node("b")); err != nil {
		t.Fatal(err)
	}
	f := TLS(a.Files("a"))
	for want, change := range map[string]func(c *Config){
		"needs all three":                             func(c *Config) { c.TLS.CA = "" },
		"none for gossip":                             func(c *Config) { c.GossipKeys = "" },
		`none for rail "r0"`:                          func(c *Config) { c.TLS = TLS{} },
		"gossip has keys and is named as plaintext":   func(c *Config) { c.Plaintext = []string{"gossip"} },
		`plaintext "r7": neither a rail nor "gossip"`: func(c *Config) { c.Plaintext = []string{"r7"} },
		`rail "gossip"`:                               func(c *Config) { c.Rails[0].Name = "gossip" },
		"is of polyrail://prod/b, this node is polyrail://prod/a": func(c *Config) {
			c.TLS.Cert, c.TLS.Key = a.Files("b").Cert, a.Files("b").Key
		},
		"this node is polyrail://other/a": func(c *Config) { c.Cluster = "other" },
		"no such file":                    func(c *Config) { c.GossipKeys += "x" },
		"a key is base64":                 func(c *Config) { c.GossipKeys = f.Cert },
	} {
		c := DefaultConfig()
		c.Name, c.Cluster, c.Logger = "a", "prod", slog.New(slog.DiscardHandler)
		c.Rails = []Rail{{Name: "r0", Protocol: "tcp", Device: "127.0.0.1"}}
		c.TLS, c.GossipKeys = f, a.GossipFile()
		change(&c)
		n, err := Start(t.Context(), c)
		if err == nil {
			_ = n.Close(t.Context())
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// What says in plain text that it goes without keys does, beside what has some.
func TestPlaintextIsByName(t *testing.T) {
	adapt, _ := withKeys(t, func(c *Config) { c.Plaintext = []string{c.Rails[1].Name} })
	inBed(t, 2, 2, adapt, func(b *bed) {
		b.carried(b.form("train"))
		for i, want := range []string{"mem+tls", "mem"} {
			if got := b.Nodes[0].Rails()[i].Protocol; got != want {
				t.Errorf("rail %d is %s, want %s", i, got, want)
			}
		}
	})
}

// A node whose certificate has ended says so of itself, rather than that the others don't answer.
func TestANodeWhoseCertificateHasEndedIsNotReady(t *testing.T) {
	adapt, a := withKeys(t, nil)
	inBed(t, 2, 1, func(c *Config) {
		if adapt(c); c.Name == testbed.NodeName(0) {
			soonOver(t, a, c.Cluster, c.Name, time.Minute)
		}
	}, func(b *bed) {
		<-time.After(2 * time.Minute)
		obstacles := func(i int) []string {
			s, err := b.Nodes[i].Status(b.t.Context())
			if err != nil {
				t.Error(err)
			}
			return s.Obstacles
		}
		if said := obstacles(0); !strings.Contains(fmt.Sprint(said), "certificate has expired") {
			t.Errorf("it is not ready because of %q", said)
		}
		if said := obstacles(1); len(said) > 0 {
			t.Errorf("the other node is not ready because of %q", said)
		}
		for i, err := range b.failures(func(i int) error {
			ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
			defer cancel()
			_, err := b.Nodes[i].Communicator(ctx, "late", 2)
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "certificate has expired") {
				t.Errorf("node %d: %v", i, err)
			}
		}
	})
}

// soonOver puts a certificate in a node's place that ends soon.
func soonOver(t *testing.T, a keys.Authority, cluster, node string, length time.Duration) {
	t.Helper()
	decode := func(name string) []byte {
		text, err := os.ReadFile(a.Dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		return block.Bytes
	}
	ca, err := x509.ParseCertificate(decode("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := x509.ParsePKCS8PrivateKey(decode("ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(7),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(length),
		URIs: []*url.URL{{Scheme: keys.Scheme, Host: cluster, Path: "/" + node}}}, ca, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		node + "-key.pem": {Type: "PRIVATE KEY", Bytes: text}, node + ".pem": {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(a.Dir+"/"+name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
