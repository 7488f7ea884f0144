package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

func entry(name, node string) cluster.Entry {
	return cluster.Entry{Cluster: name, Node: node, Incarnation: 7, Addr: "10.0.0.1:7946"}
}

func put(t *testing.T, s *Store, entries ...cluster.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := s.Put(t.Context(), e, ttl); err != nil {
			t.Fatal(err)
		}
	}
}

// leave makes a file in the directory of cluster red, so long ago.
func leave(t *testing.T, s *Store, file, text string, ago time.Duration) {
	t.Helper()
	if err := os.MkdirAll(s.of("red"), 0o755); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(s.of("red"), file)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

// expect compares what the store lists, in any order.
func expect(t *testing.T, s *Store, name string, want ...string) {
	t.Helper()
	values, err := s.List(t.Context(), name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range values {
		got = append(got, string(v))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("cluster %q has\n%q, want\n%q", name, got, want)
	}
}

func text(e cluster.Entry) string { return string(e.Encode()) }

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	return names
}

func TestEntriesOfAClusterAreKept(t *testing.T) {
	s := New(t.TempDir())
	a, b, other := entry("red", "a"), entry("red", "b"), entry("blue", "a")
	put(t, s, a, b, other, a)
	expect(t, s, "red", text(a), text(b))
	expect(t, s, "blue", text(other))
	for range 2 {
		if err := s.Remove(t.Context(), a); err != nil {
			t.Error(err)
		}
		expect(t, s, "red", text(b))
	}
	if got := files(t, s.of("red")); !slices.Equal(got, []string{"b#7.json"}) {
		t.Errorf("files %q", got)
	}
}

func TestClusterNamesStayInTheDirectory(t *testing.T) {
	s := New(t.TempDir())
	names := []string{"..", "a/b", "", "x\x00y", strings.Repeat("ü", 127), strings.Repeat("ü", 126) + "uu"}
	seen := map[string]bool{}
	for _, name := range names {
		dir := s.of(name)
		if filepath.Dir(dir) != s.dir || seen[dir] || len(filepath.Base(dir)) > maxName {
			t.Errorf("cluster %q is kept in %q", name, dir)
		}
		seen[dir] = true
		put(t, s, entry(name, "a"))
		expect(t, s, name, text(entry(name, "a")))
	}
}

func TestTheLatestEntriesComeFirst(t *testing.T) {
	s := New(t.TempDir())
	for i := range cluster.MaxEntries + 50 {
		leave(t, s, fmt.Sprintf("%03d.json", i), fmt.Sprint(i),
			9*time.Second-time.Duration(i)*time.Millisecond)
	}
	values, err := s.List(t.Context(), "red", ttl)
	if err != nil || len(values) != cluster.MaxEntries ||
		string(values[0]) != fmt.Sprint(cluster.MaxEntries+49) {
		t.Errorf("%d values, error %v", len(values), err)
	}
}

func TestWhatCrashesLeaveIsSkippedAndCleanedUp(t *testing.T) {
	s := New(t.TempDir())
	leave(t, s, "dead#1.json", text(entry("red", "dead")), time.Minute)
	leave(t, s, tempPrefix+"123", `{"form`, time.Minute)
	leave(t, s, tempPrefix+"456", `{"form`, time.Second) // somebody may be at it
	leave(t, s, "notes.txt", "not ours", time.Hour)
	// A power failure; cluster.DecodeEntry refuses it.
	leave(t, s, "half#1.json", `{"form`, time.Second)
	a := entry("red", "a")
	put(t, s, a)
	expect(t, s, "red", text(a), `{"form`)
	if got := files(t, s.of("red")); !slices.Equal(got, []string{tempPrefix +
		"456", "a#7.json", "half#1.json", "notes.txt"}) {
		t.Errorf("files %q", got)
	}
}

func TestWhatIsNoFileOfOursIsNotRead(t *testing.T) {
	s := New(t.TempDir())
	a := entry("red", "a")
	put(t, s, a)
	dir := s.of("red")
	secret := filepath.Join(t.TempDir(), "secret")
	for _, err := range []error{
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, filepath.Join(dir, "link.json")),
		os.Mkdir(filepath.Join(dir, "dir.json"), 0o755),
		syscall.Mkfifo(filepath.Join(dir, "pipe.json"), 0o644),
		os.WriteFile(filepath.Join(dir, "long.json"), make([]byte, cluster.MaxEntryBytes+1), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s, "red", text(a))
	// It became a pipe after the look.
	opened, err := s.enter("red")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if _, err := read(opened, "pipe.json"); err == nil {
		t.Error("a pipe was read")
	}
}

// The host's clock is an hour ahead of, or behind, the file server's.
func TestClocksOfHostsDoNotMatter(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		s := New(t.TempDir())
		s.skew = -ahead // as Put finds it
		leave(t, s, "recent.json", "recent", ahead+time.Second)
		leave(t, s, "old.json", "old", ahead+time.Minute)
		expect(t, s, "red", "recent")
	}
}

// The file server's clock was set back by an hour since some files were written. Whoever lives renews
// its own.
func TestWhatComesFromTheFutureHasExpired(t *testing.T) {
	s := New(t.TempDir())
	leave(t, s, "dead#1.json", "dead", -time.Hour)
	expect(t, s, "red", "dead") // without a file of its own a host can't tell: its own clock may be late
	a := entry("red", "a")
	put(t, s, a)
	leave(t, s, "near.json", "near", -time.Second)
	expect(t, s, "red", text(a), "near")
	if got := files(t, s.of("red")); !slices.Equal(got, []string{"a#7.json", "near.json"}) {
		t.Errorf("files %q", got)
	}
}

func TestPutMeasuresTheFileServersClock(t *testing.T) {
	s := New(t.TempDir())
	s.skew = time.Hour
	put(t, s, entry("red", "a"))
	if s.skew.Abs() > time.Minute {
		t.Errorf("skew %v on a local disk", s.skew)
	}
}

func TestReadersNeverSeeHalfAnEntry(t *testing.T) {
	dir := t.TempDir()
	const writers, rounds = 8, 50
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			s := New(dir)
			e := entry("red", fmt.Sprintf("n%d", i))
			for range rounds {
				if err := s.Put(t.Context(), e, ttl); err != nil {
					t.Error(err)
				}
				values, err := s.List(t.Context(), "red", ttl)
				if err != nil {
					t.Error(err)
				}
				own := false
				for _, v := range values {
					got, err := cluster.DecodeEntry(v)
					if err != nil {
						t.Errorf("%q: %v", v, err)
					}
					own = own || got == e
				}
				if !own {
					t.Error("a List after the Put does not find it")
				}
			}
		})
	}
	running.Wait()
	if got := files(t, New(dir).of("red")); len(got) != writers {
		t.Errorf("left are %q", got)
	}
}

func TestErrorsNameTheDirectory(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "not-mounted"))
	err := s.Put(t.Context(), entry("red", "a"), ttl)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not-mounted:") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Error("it was made: what looks like a shared directory is a local one now")
	}
	if _, err := s.List(t.Context(), "red", ttl); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not-mounted:") {
		t.Errorf("got %v", err)
	}
}

func TestAForbiddenDirectoryIsAnError(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED: nothing is forbidden to root")
	}
	s := New(t.TempDir())
	put(t, s, entry("red", "a"))
	if err := os.Chmod(s.of("red"), 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(s.of("red"), 0o755)
	if err := s.Put(t.Context(), entry("red", "b"), ttl); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
	expect(t, s, "red", text(entry("red", "a"))) // who may only read can still join
}

func TestCallsEndWithTheirContext(t *testing.T) {
	s := New(t.TempDir())
	hang := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := bounded(ctx, s, func() (int, error) { <-hang; return 0, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	for name, err := range map[string]error{
		"Put":    s.Put(ctx, entry("red", "a"), ttl),
		"Remove": s.Remove(ctx, entry("red", "a")),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(hang)
	put(t, s, entry("red", "a")) // it goes on where the file system does
}

// Nodes of several users share a store that all of them may write to.
func TestWhoeverMayWriteToTheDirectoryMayWriteToAClusters(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777, 0o777 | fs.ModeSticky, 0o770 | fs.ModeSetgid, 0o700} {
		s := New(t.TempDir())
		if err := os.Chmod(s.dir, mode); err != nil {
			t.Fatal(err)
		}
		put(t, s, entry("red", "a"))
		info, err := os.Stat(s.of("red"))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ fs.ModeDir; got != mode {
			t.Errorf("a cluster's directory in one of mode %v has mode %v", mode, got)
		}
	}
}
