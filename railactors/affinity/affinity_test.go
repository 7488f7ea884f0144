package affinity

import (
	"slices"
	"strings"
	"testing"
)

func TestParseReadsNumbersAndRanges(t *testing.T) {
	for s, want := range map[string][]int{
		"0": {0}, "0-2": {0, 1, 2}, "4,0-1": {0, 1, 4}, "0-1+4": {0, 1, 4}, "3,3,2-3": {2, 3}, "1023": {1023},
		strings.Repeat("5,", 1<<18): {5},
	} {
		got, err := Parse(s)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
		again, err := Parse(Format(got))
		if err != nil || !slices.Equal(again, got) {
			t.Errorf("%q, formatted and parsed again: %v, %v", s, again, err)
		}
	}
	if s := Format([]int{8, 2, 0, 1}); s != "0-2+8" {
		t.Errorf("formatted: %q", s)
	}
}

func TestParseNamesWhatItCannotRead(t *testing.T) {
	for s, culprit := range map[string]string{
		"": `""`, ",": `","`, "x": `"x"`, "0,2-1": `"2-1"`, "-1": `"-1"`, "1024": `"1024"`, "0-9999999999999999999": "99", "0-": `"0-"`,
	} {
		if cores, err := Parse(s); err == nil || !strings.Contains(err.Error(), culprit) {
			t.Errorf("%q: %v, %v; want an error with %s", s, cores, err, culprit)
		}
	}
}

func TestCheckNamesTheCore(t *testing.T) {
	allowed, err := Allowed()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	if err := Check(nil); err != nil {
		t.Errorf("no wish: %v", err)
	}
	if err := Check(allowed); err != nil {
		t.Errorf("all allowed cores: %v", err)
	}
	for c := range MaxCores {
		if slices.Contains(allowed, c) {
			continue
		}
		err := Check([]int{allowed[0], c})
		if err == nil || !strings.Contains(err.Error(), "core "+Format([]int{c})+":") || !strings.Contains(err.Error(), Format(allowed)) {
			t.Errorf("core %d: %v", c, err)
		}
		return
	}
}
