package tuning

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/op"
	"github.com/polyrail/polyrail/collective/table"
)

func example(ranks int) Tuning {
	return Tuning{
		Key: Key{Ranks: ranks, Rails: []Rail{{"fast", "tcp"}, {"slow: # {", "tcp"}}},
		At:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Saved: balance.Saved{
			Classes: []balance.SavedClass{
				{Class: 3, Algorithm: op.RecursiveDoubling, Bytes: 8, Shares: []uint32{1, 0}, Windows: 3, Settled: true},
				{Class: 20, Algorithm: op.Ring, Bytes: 1 << 20, Shares: []uint32{77, 19}, Windows: 9},
			},
			Samples: []balance.Sample{
				{Rail: 0, Algorithm: op.Ring, Class: 20, Bytes: 800_000, Elapsed: 25 * time.Millisecond, Weight: 2.5},
				{Rail: 1, Algorithm: op.Ring, Class: 20, Alone: true, Bytes: 1 << 20, Elapsed: 126*time.Millisecond + 1, Weight: 1},
			},
		},
	}
}

func encode(t testing.TB, tunings ...Tuning) []byte {
	t.Helper()
	text, err := Encode(tunings)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAFileReadsBackAsWritten(t *testing.T) {
	want := []Tuning{example(2), example(4)}
	got, err := Decode(encode(t, want...))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	if got, err := Decode(nil); err != nil || len(got) != 0 {
		t.Errorf("an empty file: %v, %v", got, err)
	}
}

func TestAFileHasOneLineForEachClassAndSample(t *testing.T) {
	e := example(2)
	e.Saved.Classes[1].Model = []balance.RailReport{{Known: true, Startup: 50 * time.Microsecond, Rate: 31.25e6}, {}}
	text := string(encode(t, e))
	for _, want := range []string{
		"\n      - {up-to: 1048576, algorithm: ring, shares: {fast: 77, 'slow: # {': 19}, bytes: 1048576, windows: 9, settled: false} # fast 50µs + 31.25 MB/s\n",
		"\n      - {rail: fast, algorithm: ring, up-to: 1048576, bytes: 800000, time: 25ms, weight: 2.5}\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestAFaultIsNamed(t *testing.T) {
	good := string(encode(t, example(2)))
	for _, c := range []struct{ old, new, want string }{
		{"version: 1", "version: 7", "version 7"},
		{"version: 1", "", "version 0"},
		{"version: 1", "version: 1\nextra: 1", "extra"},
		{"ranks: 2", "ranks: 0", "0 ranks"},
		{"windows: 9", "windows: 9, color: red", "color"},
		{"windows: 9", "windows: many", "many"},
		{"up-to: 1048576, algorithm: ring, shares", "up-to: 1000000, algorithm: ring, shares", "1000000"},
		{"up-to: 1048576, algorithm: ring, shares", "up-to: 8, algorithm: ring, shares", "operations of 1048576 bytes"},
		{"bytes: 8,", "bytes: 4,", "4 bytes"},
		{"{fast: 77", "{quick: 77", `"quick"`},
		{"{fast: 77", "{fast: 99999999", "99999999"},
		{"{fast: 1, 'slow: # {': 0}", "{}", "no rail has weight"},
		{"algorithm: ring", "algorithm: rign", "rign"},
		{"algorithm: ring", "algorithm: auto", "auto"},
		{"weight: 2.5", "weight: .nan", "NaN"},
		{"weight: 2.5", "weight: -1", "-1"},
		{"time: 25ms", "time: -25ms", "-25ms"},
		{"rail: fast", "rail: third", `"third"`},
		{"{name: fast", "{name: 'slow: # {'", "slow"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Errorf("%q is not in the example:\n%s", c.old, good)
		}
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: error %v does not say %q in one line", c.new, c.old, err, c.want)
		}
	}
	if _, err := Decode(bytes.Repeat([]byte("# more\n"), MaxBytes/7+1)); err == nil {
		t.Error("a file of any length is read")
	}
	if _, err := Decode([]byte(good + "---\n" + good)); err == nil {
		t.Error("a second document is read over")
	}
}

func TestAFileKeepsTheNewest(t *testing.T) {
	var all []Tuning
	for i := range MaxTunings + 3 {
		all = append(all, example(i+1))
	}
	got, err := Decode(encode(t, all...))
	if err != nil || len(got) != MaxTunings || got[0].Key.Ranks != 4 {
		t.Fatalf("%d tunings from that of %d ranks on, %v", len(got), got[0].Key.Ranks, err)
	}
	large := example(7)
	large.Key.Rails[1].Name = strings.Repeat("x", maxName)
	for len(large.Saved.Samples) < balance.MaxSamples {
		large.Saved.Samples = append(large.Saved.Samples, large.Saved.Samples[1])
	}
	text := encode(t, large, large)
	if got, err := Decode(text); err != nil || len(text) > MaxBytes || len(got) != 1 {
		t.Errorf("%d bytes with %d tunings, %v", len(text), len(got), err)
	}
	large.Saved.Samples = append(large.Saved.Samples, large.Saved.Samples...)
	if _, err := Encode([]Tuning{example(2), large}); err == nil || !strings.Contains(err.Error(), "7 ranks") {
		t.Errorf("more than a file holds: %v", err)
	}
}

func TestStoresOfOneFileKeepEachOthersEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	var stores []*Store
	for range 4 {
		s, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	for i, s := range stores {
		e := example(i + 2)
		if err := s.Put(e.Key, e.Saved, e.At); err != nil {
			t.Fatal(err)
		}
	}
	last, err := Open(file)
	if err != nil || len(last.Keys()) != len(stores) {
		t.Fatalf("keys %v, %v", last.Keys(), err)
	}
	if saved, found, _ := last.Get(example(3).Key); !found || !reflect.DeepEqual(saved, example(3).Saved) {
		t.Errorf("found %v: %+v", found, saved)
	}
	other := example(3).Key
	other.Rails = other.Rails[:1]
	if _, found, first := last.Get(other); found || !first {
		t.Errorf("other rails: found %v, first %v", found, first)
	}
	if _, found, first := last.Get(other); found || first {
		t.Errorf("other rails again: found %v, first %v", found, first)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}

func TestReadersSeeWholeFilesWhileOneIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	s, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for k := range 10 {
				e := example(2 + i)
				if err := s.Put(e.Key, e.Saved, e.At.Add(time.Duration(k)*time.Hour)); err != nil {
					t.Error(err)
				}
				if _, err := Open(file); err != nil {
					t.Errorf("read while it was written: %v", err)
				}
			}
		})
	}
	all.Wait()
}

func TestWhatCannotBeReadOrWrittenIsNamed(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: %v", err)
	}
	file := filepath.Join(dir, "missing", "tuning.yaml")
	s, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("before there is anything to write: %v, want an error that names the file", err)
	}
	if e := example(2); s.Put(e.Key, e.Saved, e.At) == nil {
		t.Error("a file in no directory was written")
	} else if err := s.Put(e.Key, e.Saved, e.At); !strings.Contains(err.Error(), file) {
		t.Errorf("%v does not name the file", err)
	}
}

// One communicator's figures must not cost the others theirs.
func TestWhatCouldNotBeReadAgainIsNotWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	s, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := example(2), example(3)
	if err := s.Put(good.Key, good.Saved, good.At); err != nil {
		t.Fatal(err)
	}
	bad.Saved.Samples[0].Elapsed = 1000 * time.Hour // as a rank may say
	if err := s.Put(bad.Key, bad.Saved, bad.At); err == nil || !strings.Contains(err.Error(), "1000h") {
		t.Errorf("impossible figures: %v", err)
	}
	if again, err := Open(file); err != nil || len(again.Keys()) != 1 {
		t.Errorf("then the file has %v, %v", again.Keys(), err)
	}
}

// FuzzDecode: whatever a file holds, it is refused or can be used, and then reads back as written.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, example(2), example(3)))
	f.Add([]byte("version: 1\ntunings: []\n"))
	f.Add([]byte("version: 1\ntunings: &a [*a]\n"))
	f.Add([]byte("version: 2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tunings, err := Decode(text)
		if err != nil {
			return
		}
		again, err := Decode(encode(t, tunings...))
		if err != nil || len(again) != len(tunings) {
			t.Fatalf("%d tunings read back as %d: %v", len(tunings), len(again), err)
		}
		for i := range tunings {
			use(t, &again[i])
		}
	})
}

// use gives a tuning to a balancer, as actors does.
func use(t *testing.T, e *Tuning) {
	rails := len(e.Key.Rails)
	static, err := balance.Static(balance.Equal(rails), 16<<10, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := balance.NewBalancer(balance.Setup{Rails: rails, SplitBytes: 16 << 10, Start: static,
		Algorithm: func(int64) op.Algorithm { return op.Ring },
		Owners:    func(op.Algorithm) int { return e.Key.Ranks }})
	b.Learn(e.Saved.Samples)
	got := table.Table{Entries: b.Restore(e.Saved.Classes)}
	if err := got.Validate(rails); err != nil {
		t.Fatalf("%v of %+v", err, e.Saved)
	}
	if saved, ok := b.Save(); ok {
		if err := saved.Validate(rails); err != nil {
			t.Fatalf("what was restored is saved as %+v: %v", saved, err)
		}
	}
	_ = fmt.Sprint(e.Key, b.Report())
}

// Many hosts may share a file by links, and not everybody need read it.
func TestALinkToTheFileStaysOne(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "shared.yaml"), filepath.Join(dir, "link.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := replace(link, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v: the link was replaced", info, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, mode %v", text, err, info.Mode())
	}
}
