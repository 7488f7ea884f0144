package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/polyrail/polyrail"
)

// TestAScreenFitsItsWindow shows a cluster of 64 nodes, two of which are not well.
func TestAScreenFitsItsWindow(t *testing.T) {
	frame := func(second int, bytes, operations uint64) *polyrail.ClusterStatus {
		var others []string
		for i := 1; i < 64; i++ {
			silent := 0
			if i == 63 {
				silent = 9
			}
			others = append(others, fmt.Sprintf(`{"Node": "host-%02d", "Silent": %d, "Rails": [{"Name": "fast", "Up": %v, "BytesSent": %d}]}`,
				i, silent, i != 40, bytes))
		}
		text := fmt.Sprintf(`{"Self": {"Node": "host-00", "Time": "2026-01-01T00:00:%02dZ",
			"Rails": [{"Name": "fast", "Up": true, "BytesSent": %d}],
			"Counts": [{"Name": "train", "Counts": [{"Kind": "allreduce", "MaxBytes": 256, "Took": {"Count": %d, "Sum": 1000000000}}]}],
			"Communicators": [{"Name": "train", "Size": 64, "Trees": [{"Rail": "fast", "Node": "switch"}]}]},
			"Others": [%s], "SilentAfter": 4}`, second, bytes, operations, strings.Join(others, ","))
		c := new(polyrail.ClusterStatus)
		if err := json.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, now := frame(1, 0, 0), frame(2, 12_345_678_901, 71_428)
	sent := make(rates)
	sent.see(before)
	sent.see(now)
	again := frame(3, 12_345_678_901, 71_428)
	for i := range again.Others {
		again.Others[i].Silent++ // the same answers
	}
	sent.see(again)
	show := func(fit window) (lines []string) {
		t.Helper()
		var text strings.Builder
		if err := screen(&text, now, before, sent, fit); err != nil {
			t.Fatal(err)
		}
		return strings.Split(text.String(), "\n")
	}
	lines := show(window{})
	for _, want := range []string{"host-01", "host-62", "fast up    12346 MB/s", "71428", "tree on fast at switch"} {
		if all := strings.Join(lines, "\n"); !strings.Contains(all, want) {
			t.Errorf("without a limit: no %q in\n%s", want, all)
		}
	}
	lines = show(window{lines: 24, columns: 40})
	if len(lines) > 24 {
		t.Errorf("%d lines in a window of 24:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 40 {
			t.Errorf("%d characters in a window of 40: %s", utf8.RuneCountInString(line), line)
		}
	}
	if lines := show(window{lines: 8, columns: 80}); len(lines) > 8 {
		t.Errorf("%d lines in a window of 8", len(lines))
	}
	if sent.see(new(polyrail.ClusterStatus)); len(sent) > 0 {
		t.Errorf("%d rails of nodes that are gone", len(sent))
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"host-40", "fast DOWN", "SILENT for 9 s", "more, 0 of them not well"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}
