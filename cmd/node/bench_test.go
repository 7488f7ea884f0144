package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	pb "github.com/google/pprof/profile"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/osu"
)

func TestAFileThatCannotBeMadeIsFoundOutBeforeMeasuring(t *testing.T) {
	for _, flag := range []string{"--profile", "--timeline"} {
		code, out, errs := node(t, "bench", "--ranks", "1", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:127.0.0.1",
			"--sizes", "8", "--min-time", "1ms", "--csv", flag+"="+strings.Repeat("x", 300)) // the directory is there
		if code != exitFailure || !strings.Contains(errs, flag+": open ") || out != "" {
			t.Errorf("%s: exit code %d, after this was measured: %q\n%s", flag, code, out, errs)
		}
	}
}

func TestTheResultsOfAllOperationsAreOneFile(t *testing.T) {
	_, out, errs := node(t, "bench", "--ranks", "1", "--name", "a", "--bind", "127.0.0.1:0", "--rail", "r0=tcp:127.0.0.1",
		"--sizes", "8", "--min-time", "1ms", "--op", "all", "--csv")
	if n := strings.Count(out, "system,"); n != 1 || strings.Count(out, "polyrail,") != len(operations) {
		t.Errorf("%d headers in\n%s%s", n, out, errs)
	}
}

// TestBenchOverProcesses runs the command as a user does: K processes, sockets, gossip.
func TestBenchOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command and starts processes")
	}
	program := filepath.Join(t.TempDir(), "node")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	bench := func(t *testing.T, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"bench", "--local", "2", "--min-time", "20ms", "--check"}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out.String(), errs.String())
		}
		return out.String()
	}
	t.Run("JSON", func(t *testing.T) {
		// What is measured depends on how busy this host is.
		out := bench(t, "--json", "--sizes", "8,1MiB", "--shm=off", "--balance", "static", "--pin-frames", "on")
		var sizes []int
		for line := range strings.Lines(out) {
			var r osu.Result
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sizes = append(sizes, r.Bytes)
			if r.Ranks != 2 || r.Errors != 0 || r.Iterations < 3 || len(r.Shares) != 2 || r.P50Micros <= 0 {
				t.Errorf("result %+v", r)
			}
			if share := r.Shares["rail0"]; r.Bytes == 1<<20 && (share < 0.4 || share > 0.6) {
				t.Errorf("rail0 carried %.2f of 1 MiB, want about half", share)
			}
		}
		if len(sizes) != 2 {
			t.Errorf("sizes %v were printed", sizes)
		}
	})
	t.Run("a page", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.73:0") // where nobody else takes the port meanwhile
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		bench(t, "--sizes", "8", "--http", addr) // an address that two processes can't have
	})
	t.Run("a file without room", func(t *testing.T) {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip(err)
		}
		for _, flag := range []string{"--profile=/dev/full", "--timeline=/dev/full"} {
			cmd := exec.CommandContext(t.Context(), program, "bench", "--local", "2", "--sizes", "8", "--min-time", "20ms", flag)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(string(out), strings.TrimSuffix(flag, "=/dev/full")+": write") {
				t.Errorf("%s: %v\n%s", flag, err, out)
			}
		}
	})
	t.Run("nothing is left behind head", func(t *testing.T) {
		leavesNothing(t, program, func(_ *os.Process, stdout *os.File) error { return stdout.Close() })
	})
	t.Run("nothing is left of a terminal that closes", func(t *testing.T) {
		leavesNothing(t, program, func(parent *os.Process, _ *os.File) error { return parent.Signal(syscall.SIGHUP) })
	})
	t.Run("memory", func(t *testing.T) {
		for hosts, want := range map[string]func(share float64) bool{
			"0": func(share float64) bool { return share == 1 },  // all of it
			"2": func(share float64) bool { return share == -1 }, // no rank shares its host
		} {
			var r osu.Result
			if err := json.Unmarshal([]byte(bench(t, "--json", "--sizes", "1MiB", "--hosts", hosts)), &r); err != nil {
				t.Fatal(err)
			}
			share, there := r.Shares["shm"]
			if !there {
				share = -1
			}
			if !want(share) || r.Errors != 0 {
				t.Errorf("--hosts %s: %+v", hosts, r)
			}
		}
	})
	t.Run("explained memory", func(t *testing.T) {
		if out := bench(t, "--sizes", "8", "--explain", "--shm=on"); !strings.Contains(out, "nothing to balance") || strings.Contains(out, "weights") {
			t.Errorf("memory alone is explained so:\n%s", out)
		}
	})
	t.Run("profile", func(t *testing.T) {
		core, file := polyrail.FormatCPUs(firstCore(t)), filepath.Join(t.TempDir(), "cpu.pprof")
		out := bench(t, "--json", "--sizes", "16MiB", "--min-time", "500ms", "--profile="+file, "--rail", "rail0=tcp:127.0.0.1,cpus="+core)
		var r osu.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Profile == nil {
			t.Fatalf("%q: %v", out, err)
		}
		all, system := 0.0, 0.0
		for _, p := range r.Profile.Parts {
			all += p.Share
			if p.Name == "read" || p.Name == "write" {
				system += p.Share
			}
		}
		if all < 0.999 || all > 1.001 || system == 0 {
			t.Errorf("shares add up to %.3f, those of system calls to %.3f: %+v", all, system, r.Profile)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := pb.ParseData(text); err != nil || len(p.Sample) == 0 {
			t.Errorf("the profile's file: %v", err)
		}
	})
	t.Run("tuning and plot", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "tuning.yaml")
		tune := exec.CommandContext(t.Context(), program, "tune", "--local", "2", "--tuning", file, "--sizes", "8,64KiB", "--max-time", "100ms")
		out, err := tune.CombinedOutput()
		if err != nil {
			t.Fatalf("tune: %v\n%s", err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "ranks: 2") {
			t.Errorf("the tuning file: %v\n%s", err, text)
		}
		for _, want := range []string{"# Tuning for 2 ranks on rails rail0/rail1", "64KiB", "Written to " + file} {
			if !strings.Contains(string(out), want) {
				t.Errorf("tune does not print %q:\n%s", want, out)
			}
		}
		bench(t, "--balance", "measured", "--tuning", file, "--sizes", "8,1MiB", "--plot", filepath.Join(dir, "plots"), "--log-level", "warn")
		for name, begin := range map[string]string{"shares.csv": "seconds,bytes,operation,table,rail,share\n", "shares.png": "\x89PNG",
			"rates.csv": "seconds,bytes,rail,", "rates.png": "\x89PNG"} {
			if text, err := os.ReadFile(filepath.Join(dir, "plots", name)); err != nil || !strings.HasPrefix(string(text), begin) {
				t.Errorf("%s: %v, %.60q", name, err, text)
			}
		}
	})
	t.Run("tuning says whether it is kept", func(t *testing.T) {
		for _, name := range []string{"none/tuning.yaml", "short.yaml"} { // 1 ns is no time for a window
			file := filepath.Join(t.TempDir(), name)
			tune := exec.CommandContext(t.Context(), program, "tune", "--local", "2", "--tuning", file, "--sizes", "8", "--max-time", "1ns")
			out, err := tune.CombinedOutput()
			_, missing := os.Stat(file)
			if said := strings.Contains(string(out), "Written"); said != (missing == nil) || said != (err == nil) || !strings.Contains(string(out), file) {
				t.Errorf("%v, and of the file: %v\n%s", err, missing, out)
			}
		}
	})
	t.Run("rendezvous", func(t *testing.T) { benchByRendezvous(t, program) })
	t.Run("every operation", func(t *testing.T) {
		out := bench(t, "--op", "all", "--json", "--sizes", "8,100KiB", "--root", "1", "--warmup", "2", "--min-time", "1ms")
		lines := map[string][]int{}
		for line := range strings.Lines(out) {
			var r osu.Result
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			lines[r.Op] = append(lines[r.Op], r.Bytes)
			if r.Errors != 0 || r.Iterations < 3 {
				t.Errorf("result %+v", r)
			}
		}
		for _, o := range operations {
			want := []int{8, 100 << 10}
			if o.kind.Empty() {
				want = []int{0}
			}
			if !slices.Equal(lines[o.name], want) {
				t.Errorf("%s: sizes %v, want %v", o.name, lines[o.name], want)
			}
		}
	})
	t.Run("every operation on pairs", func(t *testing.T) {
		out := bench(t, "--op", "all", "--json", "--sizes", "16,100KiB", "--root", "1", "--dtype", "float32loc", "--reduce", "minloc", "--min-time", "1ms")
		for line := range strings.Lines(out) {
			var r osu.Result
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Errors != 0 {
				t.Errorf("%q: %d wrong elements, %v", line, r.Errors, err)
			}
		}
	})
	t.Run("tables", func(t *testing.T) {
		out := bench(t, "--op", "gatherv", "--sizes", "64KiB", "--root", "1", "--min-time", "1ms")
		for _, want := range []string{"# polyrail gatherv, float32, root 1, parts as 1:2:…:n, algorithm auto, 2 ranks", "busbw = algbw * (n-1)/n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
	})
	t.Run("table", func(t *testing.T) {
		out := bench(t, "--sizes", "64KiB", "--dtype", "int32", "--reduce", "max", "--algorithm", "ring",
			"--rail", "rail0=tcp:127.0.0.1,cpus="+polyrail.FormatCPUs(firstCore(t)), "--profile")
		if !strings.Contains(out, "int32 max, algorithm ring, 2 ranks, rails rail0") {
			t.Errorf("the header does not say what was measured:\n%s", out)
		}
		if want := "# cores of readers and writers: rail0 on "; !strings.Contains(out, want) || !strings.Contains(out, "#   profile") {
			t.Errorf("%q or the profile is missing:\n%s", want, out)
		}
	})
}

// firstCore is a core that this process may use.
func firstCore(t *testing.T) []int {
	t.Helper()
	for core := range 1024 {
		cfg := polyrail.DefaultConfig()
		cfg.Rails = []polyrail.Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1", CPUs: []int{core}}}
		if cfg.Validate() == nil {
			return []int{core}
		}
	}
	t.Skip("SKIPPED: cores cannot be chosen here")
	return nil
}
