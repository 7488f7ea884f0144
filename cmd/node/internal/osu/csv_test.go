package osu

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestResultsComeBackFromCSV(t *testing.T) {
	var out bytes.Buffer
	for _, network := range []string{"equal, 2 rails", "unequal"} { // as of two runs put together
		p, err := NewCSV(&out, network)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Print(NewResult("allreduce", BusTwice, 4, 1000, hundred(), 0)); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := ReadCSV(&out)
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{{"polyrail", "equal, 2 rails", "allreduce", 4, 1000, 50}, {"polyrail", "unequal", "allreduce", 4, 1000, 50}}
	if !slices.Equal(rows, want) {
		t.Errorf("%v, want %v", rows, want)
	}
}

func TestACSVFileThatCannotBeDrawnIsToldByLine(t *testing.T) {
	const header = "system,network,op,ranks,bytes,p50_us\n"
	for text, want := range map[string]string{
		"":                                "empty",
		"system,network,op,ranks,bytes\n": "p50_us",
		header + "a,b,allreduce,x,8,1\n":  `line 2: column ranks: "x"`,
		header + "a,b,allreduce,2,8,\n":   `line 2: column p50_us: ""`,
		header + "a,b,allreduce,2,8,1\na,b,allreduce,2,-8,1\n":      "line 3",
		header + "a,b,allreduce,2,8,NaN\n":                          "line 2",
		header + "a,b,allreduce,2,8,Inf\n":                          "line 2",
		header + strings.Repeat("a,b,allreduce,2,8,1\n", maxRows+1): "100000 lines",
		strings.Repeat("x", maxCSVBytes+1):                          "16777216 bytes",
		header + "a,b\n":                                            "line 2",
	} {
		if _, err := ReadCSV(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	if rows, err := ReadCSV(strings.NewReader(header + strings.Repeat("a,b,allreduce,2,8,1\n", maxRows))); len(rows) != maxRows {
		t.Errorf("%d rows of %d: %v", len(rows), maxRows, err)
	}
}

// A spreadsheet begins a file with a mark of its encoding.
func TestACSVFileOfASpreadsheetIsRead(t *testing.T) {
	rows, err := ReadCSV(strings.NewReader("\ufeffsystem,network,op,ranks,bytes,p50_us\r\na,b,allreduce,2,8,1\r\n"))
	if want := []Row{{"a", "b", "allreduce", 2, 8, 1}}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v", rows, err)
	}
}
