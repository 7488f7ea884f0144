package cluster

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/messages"
	"github.com/polyrail/polyrail/test/bubble"
)

// keyfile is a file of keys that changes.
type keyfile struct {
	mu   sync.Mutex
	keys [][]byte
	err  error
}

// key makes a key of one letter.
func key(c byte) []byte { return bytes.Repeat([]byte{c}, 16) }

func (f *keyfile) set(letters string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = nil
	for i := range len(letters) {
		f.keys = append(f.keys, key(letters[i]))
	}
}

func (f *keyfile) read() ([][]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys, f.err
}

// keyed is a node with keys.
func keyed(t *testing.T, network Network, node, bind string, f *keyfile) peer {
	t.Helper()
	c := config(network, node, 7, bind, seed)
	if f != nil {
		c.Keys = f.read
	}
	return start(t, c)
}

func TestKeysOfGossipAreRotatedInARunningCluster(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		files := []*keyfile{{}, {}}
		for _, f := range files {
			f.set("a")
		}
		a, b := keyed(t, network, "n1", seed, files[0]), keyed(t, network, "n2", "10.0.0.2:7946", files[1])
		a.expect(t, "n2#7 joined")
		b.expect(t, "n1#7 joined")
		a.forget()
		b.forget()
		for _, letters := range []string{"ab", "ba", "b"} {
			for _, f := range files { // one node after the other
				f.set(letters)
				pass(5 * time.Second)
			}
		}
		files[0].mu.Lock()
		files[0].keys, files[0].err = nil, errors.New("no file")
		files[0].mu.Unlock()
		pass(time.Minute)
		if len(a.Members()) != 2 || len(b.Members()) != 2 || a.heard("n2#7 failed") || b.heard("n1#7 failed") {
			t.Errorf("members are %s and %s", nodes(a.Gossip), nodes(b.Gossip))
		}
		if got := a.ring.GetKeys(); len(got) != 1 || !bytes.Equal(got[0], key('b')) {
			t.Errorf("the keys in force are %s", got)
		}
		closeAll(t, a, b)
	})
}

// once has each letter where it is first.
func once(letters string) (s string) {
	for _, letter := range letters {
		if !strings.ContainsRune(s, letter) {
			s += string(letter)
		}
	}
	return s
}

func TestNoKeysAreAnError(t *testing.T) {
	c := Config{Keys: func() ([][]byte, error) { return nil, nil }}
	if _, err := c.newKeyring(); err == nil {
		t.Error("a ring without keys was made")
	}
	ring, err := memberlist.NewKeyring([][]byte{key('a')}, key('a'))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install(ring, nil); err == nil || len(ring.GetKeys()) != 1 {
		t.Errorf("the ring has %d keys, %v", len(ring.GetKeys()), err)
	}
}

func TestTheRingHasTheKeysOfTheFile(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"a", "a"}, {"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"a", "b"}, {"abcd", "dx"}, {"abcd", "bd"}, {"abcd", "efgh"},
		{"a", "bb"}, {"a", "bbb"}, {"a", "aa"}, {"ab", "bab"}, {"abcd", "dxdx"}, {"aa", "bba"},
	} {
		var f keyfile
		f.set(c.from)
		ring, err := memberlist.NewKeyring(f.keys, f.keys[0])
		if err != nil {
			t.Fatal(err)
		}
		f.set(c.to)
		before := ring.GetKeys()
		seen := slices.Clone(before)
		changed, err := install(ring, f.keys)
		want := once(c.to)
		if err != nil || changed != (once(c.from) != want) {
			t.Errorf("%s to %s: changed %v, %v", c.from, c.to, changed, err)
		}
		got := ring.GetKeys()
		if len(got) != len(want) || !bytes.Equal(got[0], f.keys[0]) {
			t.Errorf("%s to %s: %s", c.from, c.to, got)
		}
		for i := range len(want) {
			if !slices.ContainsFunc(got, func(k []byte) bool { return bytes.Equal(k, key(want[i])) }) {
				t.Errorf("%s to %s: %c is missing", c.from, c.to, want[i])
			}
		}
		for i := range before {
			if !bytes.Equal(before[i], seen[i]) {
				t.Errorf("%s to %s: keys that others read were moved", c.from, c.to)
			}
		}
	}
}

func TestWhoHasNoKeyOfGossipIsNotLetInAndToldWhy(t *testing.T) {
	for name, letters := range map[string]string{"no key": "", "another key": "x"} {
		t.Run(name, func(t *testing.T) {
			bubble.Nodes(t, func(t *testing.T) {
				network := memnet.New()
				var good keyfile
				good.set("a")
				member := keyed(t, network, "n1", seed, &good)
				var f *keyfile
				if letters != "" {
					f = &keyfile{}
					f.set(letters)
				}
				stranger := keyed(t, network, "n2", "10.0.0.2:7946", f)
				pass(10 * time.Second)
				if err := stranger.Unjoined(); err == nil || !strings.Contains(err.Error(), "keys of gossip") {
					t.Errorf("it was told %v", err)
				}
				if len(member.Members()) != 1 || len(stranger.Members()) != 1 {
					t.Errorf("members are %s and %s", nodes(member.Gossip), nodes(stranger.Gossip))
				}
				closeAll(t, member, stranger)
			})
		})
	}
}

// named is a Signer whose signature is a name: enough to see what is done with it.
type named string

func (n named) Sign(message []byte) ([]byte, [][]byte, error) {
	return append([]byte(n+":"), message...), nil, nil
}

func (n named) Check(message, signature []byte, _ [][]byte) (string, error) {
	name, text, _ := bytes.Cut(signature, []byte(":"))
	if !bytes.Equal(text, message) {
		return "", errors.New("of another message")
	}
	return string(name), nil
}

func TestRendezvousMessagesAreOfWhoHasSignedThem(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		network := memnet.New()
		var peers []peer
		for i, signer := range []Signer{named("n1"), named("n2"), named("n2"), nil} { // n3 signs as n2, n4 does not
			c := config(network, []string{"n1", "n2", "n3", "n4"}[i], 7, []string{seed, "10.0.0.2:7946", "10.0.0.3:7946", "10.0.0.4:7946"}[i], seed)
			c.Signer = signer
			peers = append(peers, start(t, c))
		}
		pass(5 * time.Second)
		for _, p := range peers[1:] {
			if err := p.Send("n1", &messages.Rendezvous{Body: &messages.Rendezvous_Commit{Commit: &messages.ViewCommit{Name: "x"}}}); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		n1 := peers[0]
		n1.ear.mu.Lock()
		if len(n1.msgs) != 1 || n1.msgs[0].From != "n2" {
			t.Errorf("heard %v, want a message of n2 alone", n1.msgs)
		}
		n1.ear.mu.Unlock()
		if got := n1.Stats().Undecodable; got != 2 {
			t.Errorf("%d messages were refused, want 2", got)
		}
		// What was signed for one process says nothing to another.
		b, err := peers[1].signed(Member{Node: "n3", Incarnation: 7}, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n1.checked(b); err == nil {
			t.Error("a message to n3 was taken by n1")
		}
		closeAll(t, peers...)
	})
}
