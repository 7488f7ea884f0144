package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// results are two networks with two systems each, in a file of two that were put together.
const results = `system,network,op,ranks,bytes,p50_us
polyrail,equal,allreduce,4,1024,100
polyrail,equal,allreduce,4,1048576,25165.8
Other,equal,allreduce,4,1048576,50331.6
polyrail,equal,broadcast,4,1048576,20000
system,network,op,ranks,bytes,p50_us
polyrail,unequal,allreduce,4,1048576,40265.3
`

func TestAChartHasAPanelForEachNetwork(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "r.csv"), filepath.Join(dir, "r.svg")
	write(t, file, results)
	if code, _, errs := node(t, "chart", file, "--limit", "500,312.5", "--out", out); code != exitOK {
		t.Fatal(errs)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", ">equal<", ">unequal<", "> polyrail<", "> Other<", "312.5 Mbit/s", ">1MiB<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the chart lacks %q", want)
		}
	}
}

func TestAChartThatCannotBeDrawnNamesTheCulprit(t *testing.T) {
	dir := t.TempDir()
	file, bad := filepath.Join(dir, "r.csv"), filepath.Join(dir, "bad.csv")
	write(t, file, results)
	write(t, bad, "bytes\n8\n")
	out := "--out=" + filepath.Join(dir, "r.svg")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{out}, exitUsage, "needs a file"},
		{[]string{out, "/no/such"}, exitUsage, "/no/such"},
		{[]string{out, bad}, exitUsage, "bad.csv: line 1"},
		{[]string{out, file, "--op", "gather"}, exitUsage, "--op gather"},
		{[]string{out, file, "--op", "all"}, exitUsage, "--op all"},
		{[]string{out, file, "--op", "barrier"}, exitUsage, "carries data"},
		{[]string{out, file, "--limit", "1,2,3"}, exitUsage, "--limit"},
		{[]string{out, file, "--limit", "-1"}, exitUsage, `"-1"`},
		{[]string{file, "--out", filepath.Join(dir, "r.bmp")}, exitUsage, "r.bmp"},
		{[]string{file, "--out", "/no/such/r.svg"}, exitUsage, "--out /no/such/r.svg"},
	} {
		code, _, errs := node(t, append([]string{"chart"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, errs, c.want)
		}
	}
}

// node bench --op all --csv writes a line of barriers, and --sizes 0 one of no bytes: no points.
func TestResultsOfNoBytesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "r.csv"), filepath.Join(dir, "r.svg")
	write(t, file, results+"polyrail,equal,barrier,4,0,20\npolyrail,empty,allreduce,4,0,20\n")
	if code, _, errs := node(t, "chart", file, "--out", out); code != exitOK {
		t.Fatal(errs)
	}
	if picture, err := os.ReadFile(out); err != nil || strings.Contains(string(picture), ">empty<") {
		t.Errorf("a panel of no bytes, or %v", err)
	}
}

// A logarithmic axis with one value has a length, too.
func TestOnePointIsDrawn(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "r.csv"), filepath.Join(dir, "r.SVG")
	write(t, file, "system,network,op,ranks,bytes,p50_us\npolyrail,equal,allreduce,4,1,100\n")
	for _, args := range [][]string{
		{"chart", file, "--out", out},
		{"simulate", "--op", "barrier", "--hosts", "4", "--plot", out},
		{"simulate", "--hosts", "1", "--sizes", "8", "--begin", "500ns", "--plot", out},
	} {
		code, _, errs := node(t, args...)
		if picture, err := os.ReadFile(out); code != exitOK || err != nil || !strings.Contains(string(picture), "<svg") {
			t.Errorf("%v: exit code %d, %s, %v", args, code, errs, err)
		}
		_ = os.Remove(out)
	}
}

// TestTheChartOfTheREADMEIsMadeByItsCommand: from the file of results beside it, to the byte.
func TestTheChartOfTheREADMEIsMadeByItsCommand(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(readme), "\nnode chart ")
	command, _, _ = strings.Cut(command, "\n")
	args, picture, drawn := strings.Cut(command, " --out ")
	if !found || !drawn {
		t.Fatalf("the README has no command that draws: %q", command)
	}
	out := filepath.Join(t.TempDir(), "chart.svg")
	words := append([]string{"chart"}, strings.Fields(strings.ReplaceAll(args, "docs/", "../../docs/"))...)
	if code, _, errs := node(t, append(words, "--out", out)...); code != exitOK {
		t.Fatal(errs)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("../..", picture))
	if err != nil || string(got) != string(want) {
		t.Errorf("node chart %s draws something else than %s (%v)", command, picture, err)
	}
}
