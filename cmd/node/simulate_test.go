package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestSimulateTellsHostsAndTrees(t *testing.T) {
	out := filepath.Join(t.TempDir(), "curves.svg")
	code, table, errs := node(t, "simulate", "--hosts", "2,4,2048", "--sizes", "8,256KiB", "--algorithms", "recursive-doubling,tree",
		"--tree", "host", "--plot", out)
	if code != exitOK {
		t.Fatal(errs)
	}
	for _, want := range []string{"hosts", "recursive-doubling", "tree of hosts", "factor", "2048"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in:\n%s", want, table)
		}
	}
	if picture, err := os.ReadFile(out); err != nil || !strings.Contains(string(picture), "<svg") {
		t.Errorf("no picture: %v", err)
	}
}

func TestSimulatesTheOperationsThatItsHelpNames(t *testing.T) {
	_, help, _ := node(t, "simulate", "--help")
	_, help, _ = strings.Cut(help, "operation: ")
	help, _, _ = strings.Cut(help, "(")
	named := strings.FieldsFunc(help, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, o := range operationNames() {
		code, _, errs := node(t, "simulate", "--op", o, "--hosts", "2", "--sizes", "8")
		if (code == exitOK) != slices.Contains(named, o) {
			t.Errorf("%s: exit code %d, %q; the help names %v", o, code, errs, named)
		}
	}
}

// Parts of less than an element would be none, and the operation over as soon as it begins.
func TestSimulatedPartsAreWholeElements(t *testing.T) {
	for _, name := range []string{"allgather", "gather", "scatter", "reducescatter", "alltoall"} {
		code, table, errs := node(t, "simulate", "--op", name, "--hosts", "3,16", "--sizes", "8,64", "--csv")
		if code != exitOK {
			t.Fatal(errs)
		}
		var bytes []string
		for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
			fields := strings.Split(line, ",")
			if bytes = append(bytes, fields[3]); fields[7] == "0" {
				t.Errorf("no frame was sent: %s", line)
			}
		}
		if want := []string{"12", "60", "64", "64"}; !slices.Equal(bytes, want) { // as bench has them
			t.Errorf("%s: sizes %v, want %v", name, bytes, want)
		}
	}
}

func TestSimulateMarksWhatItExtrapolates(t *testing.T) {
	code, table, errs := node(t, "simulate", "--hosts", "1200", "--op", "broadcast", "--sizes", "8", "--algorithms", "chain", "--csv")
	if code != exitOK || !strings.Contains(table, ",true,") {
		t.Errorf("exit code %d, %s\n%s", code, errs, table)
	}
}

// A line through one host, which uses no rail, and several would lead nowhere.
func TestALineGoesThroughSeveralHosts(t *testing.T) {
	for _, c := range []struct {
		hosts, perHost string
		code           int
	}{{"8", "256", exitOK}, {"8", "257", exitUsage}, {"2", "512", exitOK}} {
		code, table, errs := node(t, "simulate", "--hosts", c.hosts, "--per-host", c.perHost, "--sizes", "8", "--algorithms", "chain", "--op", "broadcast")
		if code != c.code {
			t.Errorf("%s hosts of %s ranks: exit code %d, %s\n%s", c.hosts, c.perHost, code, errs, table)
		}
	}
}

func TestATreeOfOneRailLeavesTheOtherToTheRanks(t *testing.T) {
	carried := func(args ...string) string {
		args = append([]string{"simulate", "--hosts", "4", "--sizes", "1MiB", "--rails", "5us:1Gbit,5us:1Gbit", "--tree", "switch", "--csv"}, args...)
		code, table, errs := node(t, args...)
		if code != exitOK {
			t.Fatal(errs)
		}
		lines := strings.Split(strings.TrimSpace(table), "\n")
		return strings.Split(lines[len(lines)-1], ",")[8] // by the ranks
	}
	if all, one := carried(), carried("--tree-rails", "0"); all == one {
		t.Errorf("ranks carry %s bytes beside a tree on one rail, and beside trees on both", one)
	}
}

func TestWrongClustersAreUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--hosts", "0"}, "--hosts 0 is outside 1…131072"},
		{[]string{"--hosts", "-1"}, "--hosts -1 is outside 1…131072"},
		{[]string{"--hosts", "4", "--per-host", "-1"}, "--per-host -1 is outside 1…131072"},
		{[]string{"--hosts", "4", "--per-host", "9000000000000000000"}, "--per-host 9000000000000000000 is outside"},
		{[]string{"--hosts", "4", "--per-host", "40000"}, "--hosts 4, --per-host 40000: there can be 131072 ranks"},
		{[]string{"--hosts", "99999999999"}, "--hosts 99999999999 is outside"},
		{[]string{"--sizes", "999999999G"}, "--sizes: 1073741822926258176 bytes: 0 to 17179869184"},
		{[]string{"--hosts", "4096", "--sizes", "1GiB", "--algorithms", "recursive-doubling"}, "--hosts 4096, --sizes: 1073741824 bytes on 4096 ranks"},
		{[]string{"--sizes", "7"}, "--sizes: 7 bytes are not a whole number of float32 elements"},
		{[]string{"--plot", "foo"}, "--plot foo: the name must end in .svg"},
		{[]string{"--plot", "/no/such/foo.svg"}, "--plot /no/such/foo.svg: open"},
		{[]string{"--rails", "5us"}, "STARTUP:RATE"},
		{[]string{"--rails", "5us:-1Gbit"}, "rate"},
		{[]string{"--rails", "5us:1Gbit:soon"}, "BURST"},
		{[]string{"--rails", "5us:1Gbit:-1us"}, "BURST"},
		{[]string{"--tree", "roof"}, "roof"},
		{[]string{"--tree", "host", "--op", "broadcast"}, "not broadcast"},
		{[]string{"--tree", "host", "--algorithms", ""}, "--algorithms is empty"},
		{[]string{"--kill", "1"}, "RAIL@TIME"},
		{[]string{"--tree", "host", "--tree-rails", "1"}, "rails 0 to 0"},
		{[]string{"--kill", "0@1ms"}, "another"},
		{[]string{"--rails", "5us:1Gbit,5us:1Gbit", "--kill", "5@1ms"}, "rails 0 to 1"},
		{[]string{"--rails", "5us:1Gbit,5us:1Gbit", "--kill", "1@1ms", "--notice", "-1s"}, "noticed after -1s"},
		{[]string{"--rails", "99999h:1Gbit"}, "startup 99999h0m0s"},
		{[]string{"--rails", "5us:0.0001Mbit"}, "0.001Mbit"},
		{[]string{"--switch", "99999h"}, "a switch takes 99999h0m0s"},
		{[]string{"--tree", "switch", "--tree-fragment", "1"}, "--tree-fragment: 1 bytes"},
		{[]string{"--tree", "switch", "--tree-radix", "1"}, "radix 1: 2 or more, or 0 for any"},
		{[]string{"--tree-rails", "0"}, "no trees without --tree"},
		{[]string{"--notice", "1s"}, "nothing is to be noticed without --kill"},
		{[]string{"--hosts", "many"}, `--hosts: "many" is not a whole number`},
		{[]string{"--hosts", "16", "--per-host", "600", "--algorithms", "ring"}, "ring is simulated up to 1024 ranks, and for more of them there can be 256"},
		{[]string{"--op", "all"}, "one operation"},
	} {
		if code, _, errs := node(t, append([]string{"simulate"}, c.args...)...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, errs, c.want)
		}
	}
}

func TestSimulateThatIsInterruptedIsNoWrongUse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := execute(ctx, []string{"simulate", "--hosts", "64", "--sizes", "1MiB"}, &out, &errs)
	if code != exitFailure || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

// A process that is told to end while it says farewell has failed of its own fault, and says so.
func TestAFaultBesideAnInterruptionIsNoInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	code := execute(ctx, []string{"keys", "node", "--dir", "/no/such", "a"}, io.Discard, &errs)
	if code != exitFailure || !strings.Contains(errs.String(), "no such file") || strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}
