package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/libpolyrail/internal/bridge"
)

// library builds the library once, and skips the test where that cannot be.
func library(t *testing.T) (lib, cc string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short; a C library compiles the standard library once more")
	}
	out, err := exec.Command("go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		t.Skip("SKIPPED: there is no go command: ", err)
	}
	enabled, cc, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if _, err := exec.LookPath(cc); enabled != "1" || err != nil {
		t.Skipf("SKIPPED: CGO_ENABLED=%s and the C compiler %q: %v", enabled, cc, err)
	}
	lib = filepath.Join(t.TempDir(), "libpolyrail.so")
	run(t, "go", "build", "-buildmode=c-shared", "-o", lib, ".")
	return lib, cc
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// compile makes a program of a C file, with all warnings as errors.
func compile(t *testing.T, cc, lib, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	run(t, cc, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", ".", "-o", program, source, lib,
		"-lm", "-Wl,-rpath,"+filepath.Dir(lib))
	return program
}

// TestTheHeaderIsCPlusPlus: programs may have all warnings as errors.
func TestTheHeaderIsCPlusPlus(t *testing.T) {
	out, err := exec.Command("go", "env", "CXX").Output()
	cxx := strings.TrimSpace(string(out))
	if _, found := exec.LookPath(cxx); err != nil || found != nil {
		t.Skipf("SKIPPED: the C++ compiler %q: %v", cxx, found)
	}
	run(t, cxx, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "polyrail.h")
}

// pair runs a program as two processes, the second of which joins the first one, and returns what
// they print after the address.
func pair(t *testing.T, program string, first, second []string, join func(address string) string) [2]string {
	t.Helper()
	start := func(args []string) (*exec.Cmd, *bufio.Reader, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "POLYRAIL_SHM=off") // the test looks at what the rails carried
		var log bytes.Buffer
		cmd.Stderr = &log
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewReader(out), &log
	}
	end := func(cmd *exec.Cmd, out *bufio.Reader, log *bytes.Buffer) string {
		var text strings.Builder
		_, _ = out.WriteTo(&text)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s%s", cmd.Args, err, text.String(), log)
		}
		return text.String()
	}
	a, aOut, aLog := start(first)
	line, err := aOut.ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "others can join at ")
	if err != nil || !found {
		t.Fatalf("the first line is %q: %v\n%s", line, err, aLog)
	}
	b, bOut, bLog := start(append(second, join(address)))
	if _, err := bOut.ReadString('\n'); err != nil {
		t.Errorf("the second process: %v\n%s", err, bLog)
	}
	ended := make(chan string)
	go func() { ended <- end(b, bOut, bLog) }()
	return [2]string{end(a, aOut, aLog), <-ended}
}

func TestEveryCallWorksFromC(t *testing.T) {
	lib, cc := library(t)
	check := compile(t, cc, lib, "testdata/check.c")
	for _, out := range pair(t, check, []string{"a"}, []string{"b"}, func(a string) string { return a }) {
		if out != "done\n" {
			t.Errorf("it printed %q", out)
		}
	}

	t.Run("example", func(t *testing.T) {
		example := compile(t, cc, lib, "../../examples/c/allreduce.c")
		common := []string{"2", "bind=127.0.0.1:0", "rail=r0=tcp:127.0.0.1", "probe=off"}
		out := pair(t, example, append(common[:4:4], "name=a"), append(common[:4:4], "name=b"),
			func(a string) string { return "join=" + a })
		for rank, text := range out {
			if want := "rank " + strconv.Itoa(rank) + ": 2 4 6\n"; text != want {
				t.Errorf("it printed %q, want %q", text, want)
			}
		}
	})

	t.Run("latency", func(t *testing.T) {
		example := compile(t, cc, lib, "../../examples/c/latency.c")
		common := []string{"2", "8", "bind=127.0.0.1:0", "rail=r0=tcp:127.0.0.1", "probe=off"}
		out := pair(t, example, append(common[:5:5], "name=a"), append(common[:5:5], "name=b"),
			func(a string) string { return "join=" + a })
		for rank, text := range out {
			if want := "rank " + strconv.Itoa(rank) + ": 8 bytes, p50 "; !strings.HasPrefix(text, want) {
				t.Errorf("it printed %q, want %q and times", text, want)
			}
		}
	})
}

// Large calls, whose callers sleep: sums, signals, patience, and what ends them meanwhile.
func TestLargeCallsFromC(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: in /proc it sees who sleeps")
	}
	lib, cc := library(t)
	large := compile(t, cc, lib, "testdata/large.c")
	for _, out := range pair(t, large, []string{"a"}, []string{"b"}, func(a string) string { return a }) {
		if out != "done\n" {
			t.Errorf("it printed %q", out)
		}
	}
}

// A sum has the same bits on whatever thread it is made: whoever calls may round otherwise, or flush
// subnormal numbers to zero, and threads inherit that.
func TestSumsDoNotFollowTheRoundingOfTheirCaller(t *testing.T) {
	lib, cc := library(t)
	rounding := compile(t, cc, lib, "testdata/rounding.c")
	for _, out := range pair(t, rounding, []string{"a"}, []string{"b"}, func(a string) string { return a }) {
		if out != "done\n" {
			t.Errorf("it printed %q", out)
		}
	}
}

// constants are the numbers that a file gives to names.
func constants(t *testing.T, file, pattern string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		found[strings.ToLower(m[1])] = n
	}
	return found
}

// TestPythonHasTheSameNumbers: the package has them once more, for ctypes.
func TestPythonHasTheSameNumbers(t *testing.T) {
	const file = "../../python/polyrail/_abi.py"
	python := constants(t, file, `(?m)^    "(\w+)": (\d+),$`)
	for _, d := range polyrail.DTypes() {
		if python[d.String()] != int(d) {
			t.Errorf("%s has %d for %v, want %d", file, python[d.String()], d, d)
		}
	}
	for _, o := range polyrail.Ops() {
		if python[o.String()] != int(o.Code()) {
			t.Errorf("%s has %d for %v, want %d", file, python[o.String()], o, o.Code())
		}
	}
}

// TestTheNumbersInTheHeaderAreThoseOfGo: a header and a package that differ would be silently wrong.
func TestTheNumbersInTheHeaderAreThoseOfGo(t *testing.T) {
	header := constants(t, "polyrail.h", `POLYRAIL_(\w+) = (\d+)`)
	want := func(name string, n int) {
		t.Helper()
		name = strings.ToLower(name)
		if got, ok := header[name]; !ok || got != n {
			t.Errorf("POLYRAIL_%s is %d (there: %v), want %d", strings.ToUpper(name), got, ok, n)
		}
		delete(header, name)
	}
	for _, d := range polyrail.DTypes() {
		want(d.String(), int(d))
	}
	for _, o := range polyrail.Ops() {
		want(o.String(), int(o.Code()))
	}
	for _, k := range append(polyrail.Kinds(), polyrail.KindAllToAllV) {
		want(k.String(), int(k))
	}
	for a := polyrail.Auto; a == polyrail.Auto || a.Valid(); a++ {
		want(strings.ReplaceAll(a.String(), "-", "_"), int(a))
	}
	for name, c := range map[string]bridge.Code{"ok": bridge.OK, "pending": bridge.Pending, "forked": bridge.Forked,
		"canceled": bridge.Canceled, "rank_lost": bridge.RankLost, "mismatch": bridge.Mismatch,
		"minority": bridge.Minority, "timeout": bridge.Timeout, "rail": bridge.Rail, "closed": bridge.Closed,
		"aborted": bridge.Aborted, "broken": bridge.Broken, "view": bridge.View, "config": bridge.Config,
		"argument": bridge.Argument, "limit": bridge.Limit, "internal": bridge.Internal, "other": bridge.Other} {
		want(name, int(c))
	}
	for name, k := range map[string]polyrail.EventKind{"rail_up": polyrail.RailUp, "rail_down": polyrail.RailDown,
		"rank_lost": polyrail.RankLost, "formed": polyrail.CommunicatorFormed, "broken": polyrail.CommunicatorBroken,
		"table": polyrail.TableChanged, "rail_moved": polyrail.RailMoved, "tree_up": polyrail.TreeUp,
		"tree_down": polyrail.TreeDown} {
		want("event_"+name, int(k))
	}
	for name := range header {
		t.Errorf("POLYRAIL_%s has no twin in Go", strings.ToUpper(name))
	}
}
