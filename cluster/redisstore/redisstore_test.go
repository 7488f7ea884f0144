package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster"
	"github.com/redis/go-redis/v9"
)

const ttl = 10 * time.Second

func entry(name, node string) cluster.Entry {
	return cluster.Entry{Cluster: name, Node: node, Incarnation: 7, Addr: "10.0.0.1:7946"}
}

func (s *server) store() *Store { return New(Options{Addr: s.addr, DB: 3}) }

// client looks into the store's database by other means.
func (s *server) client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr, DB: 3})
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, s *Store, entries ...cluster.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := s.Put(t.Context(), e, ttl); err != nil {
			t.Fatal(err)
		}
	}
}

// expect compares what the store lists, in any order.
func expect(t *testing.T, s *Store, name string, want ...cluster.Entry) {
	t.Helper()
	values, err := s.List(t.Context(), name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	var got, texts []string
	for _, v := range values {
		got = append(got, string(v))
	}
	for _, e := range want {
		texts = append(texts, string(e.Encode()))
	}
	slices.Sort(got)
	slices.Sort(texts)
	if !slices.Equal(got, texts) {
		t.Errorf("cluster %q has\n%q, want\n%q", name, got, texts)
	}
}

func TestEntriesOfAClusterAreKept(t *testing.T) {
	server := startServer(t)
	s := server.store()
	a, b, other := entry("red", "a"), entry("red", "b"), entry("blue", "a")
	expect(t, s, "red")
	put(t, s, a, b, other, a)
	expect(t, s, "red", a, b)
	expect(t, s, "blue", other)
	for range 2 {
		if err := s.Remove(t.Context(), a); err != nil {
			t.Error(err)
		}
		expect(t, s, "red", b)
	}
	left, err := server.client(t).PTTL(t.Context(), Key("red")).Result()
	if err != nil || left <= 0 || left > ttl {
		t.Errorf("the cluster's key is left %v, error %v", left, err)
	}
}

func TestExpiredEntriesAreNotListed(t *testing.T) {
	server := startServer(t)
	s, c := server.store(), server.client(t)
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	old, recent, living := entry("red", "old"), entry("red", "recent"), entry("red", "living")
	add := func(e cluster.Entry, at float64) {
		if err := c.ZAdd(t.Context(), Key("red"), redis.Z{Score: at, Member: e.Encode()}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add(old, float64(now.Add(-ttl-time.Second).UnixMilli()))
	add(recent, float64(now.Add(-ttl/2).UnixMilli()))
	add(entry("red", "future"), float64(now.Add(time.Hour).UnixMilli()))
	add(entry("red", "eternal"), math.Inf(1))
	expect(t, s, "red", recent)
	put(t, s, living)
	expect(t, s, "red", recent, living)
	if n := c.ZCard(t.Context(), Key("red")).Val(); n != 2 {
		t.Errorf("%d members are left", n)
	}
}

func TestALotOfRubbishIsBounded(t *testing.T) {
	server := startServer(t)
	s, c := server.store(), server.client(t)
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	members := []redis.Z{{Score: float64(now.UnixMilli()), Member: strings.Repeat("x", 8<<20)}}
	for i := range 5000 {
		members = append(members, redis.Z{Score: float64(now.UnixMilli() - 1),
			Member: fmt.Sprintf("%d\r\n$99999999999\r\n%s", i,
				strings.Repeat("y", cluster.MaxEntryBytes-30))})
	}
	if err := c.ZAdd(t.Context(), Key("red"), members...).Err(); err != nil {
		t.Fatal(err)
	}
	values, err := s.List(t.Context(), "red", ttl)
	if err != nil || len(values) != cluster.MaxEntries-1 {
		t.Errorf("%d values, error %v", len(values), err)
	}
	put(t, s, entry("red", "a"))
	if n := c.ZCard(t.Context(), Key("red")).Val(); n != cluster.MaxEntries {
		t.Errorf("%d members are left", n)
	}
	values, err = s.List(t.Context(), "red", ttl)
	if err != nil || string(values[0]) != string(entry("red", "a").Encode()) {
		t.Errorf("the latest of %d is not the first, error %v", len(values), err)
	}
}

func TestAKeyOfAnotherKindIsAnError(t *testing.T) {
	server := startServer(t)
	if err := server.client(t).Set(t.Context(), Key("red"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := server.store()
	_, err := s.List(t.Context(), "red", ttl)
	if err == nil || s.Put(t.Context(), entry("red", "a"), ttl) == nil {
		t.Errorf("got %v", err)
	}
}

func TestThePasswordIsUsedAndNeverShown(t *testing.T) {
	server := startServer(t, "--requirepass", "open sesame")
	for _, c := range []struct {
		password string
		ok       bool
	}{{"open sesame", true}, {"", false}, {"shibboleth", false}} {
		s := New(Options{Addr: server.addr, Password: c.password})
		_, err := s.List(t.Context(), "red", ttl)
		if (err == nil) != c.ok {
			t.Errorf("with %q: %v", c.password, err)
		}
		if text := fmt.Sprint(s, err); c.password != "" && strings.Contains(text, c.password) {
			t.Errorf("shown in %s", text)
		}
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, by its backlog, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := New(Options{Addr: l.Addr().String()})
	for name, call := range map[string]func(context.Context) error{
		"Put":    func(ctx context.Context) error { return s.Put(ctx, entry("red", "a"), ttl) },
		"List":   func(ctx context.Context) error { _, err := s.List(ctx, "red", ttl); return err },
		"Remove": func(ctx context.Context) error { return s.Remove(ctx, entry("red", "a")) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	l.Close()
	if _, err := s.List(t.Context(), "red", ttl); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// replay makes a List read the given reply, whatever it is; greeting answers the client's hello.
func replay(t *testing.T, greeting, reply []byte) ([][]byte, error) {
	mine, theirs := net.Pipe()
	var server sync.WaitGroup
	server.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	server.Go(func() {
		_, _ = theirs.Write(greeting)
		_, _ = theirs.Write(reply)
		theirs.Close()
	})
	defer server.Wait()
	var values [][]byte
	err := New(Options{Addr: "x:1"}).over(t.Context(), mine, func(c *redis.Client) error {
		found, err := listScript.Eval(t.Context(), c, []string{"k"}, 1, 2, 3).StringSlice()
		for _, v := range found {
			values = append(values, []byte(v))
		}
		return err
	})
	return values, err
}

var greeting = []byte("*2\r\n$5\r\nproto\r\n:2\r\n")

func TestRepliesThatAskForTooMuchAreRefused(t *testing.T) {
	if values, err := replay(t, greeting,
		[]byte("*2\r\n$1\r\na\r\n$8\r\n\r\n$99\r\nx\r\n")); err != nil || len(values) != 2 {
		t.Errorf("a good reply: %q, error %v", values, err)
	}
	for _, reply := range []string{
		"*9999999999999\r\n", "$9999999999999\r\n", "*1\r\n$9999999999\r\n", "%99999999\r\n",
		"$99999999999999999999\r\n",
		strings.Repeat("*1\r\n", maxReplyBytes), "+" + strings.Repeat("x", maxReplyBytes),
	} {
		_, err := replay(t, greeting, []byte(reply))
		if _, first := replay(t, []byte(reply), nil); err == nil || first == nil {
			t.Errorf("%.20q is accepted", reply)
		}
	}
	if _, err := replay(t, greeting, []byte("*9999999999999\r\n")); !errors.Is(err, errReply) {
		t.Errorf("got %v", err)
	}
}

func FuzzReply(f *testing.F) {
	for _, reply := range []string{"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "-ERR x\r\n", ":1\r\n",
		"*-1\r\n", "$-1\r\n", "*1\r\n*1\r\n$0\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"} {
		f.Add(greeting, []byte(reply))
		f.Add([]byte(reply), []byte(reply))
	}
	f.Fuzz(func(t *testing.T, greeting, reply []byte) {
		_, _ = replay(t, greeting, reply) // returns, and takes no more memory than it may
	})
}
