package osu

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// csvColumns are those of a file of results. docs/performance.md explains them.
var csvColumns = []string{"system", "network", "op", "ranks", "bytes", "iterations", "min_us", "avg_us",
	"p50_us", "p95_us", "p99_us", "max_us", "cpu_us", "errors"}

// CSV prints results as lines of a file that node chart draws.
type CSV struct {
	w       *csv.Writer
	network string
}

// NewCSV prints the header. network says what the results were measured on.
func NewCSV(w io.Writer, network string) (*CSV, error) {
	c := &CSV{w: csv.NewWriter(w), network: network}
	return c, c.write(csvColumns)
}

// Print prints one result.
func (c *CSV) Print(r Result) error {
	row := []string{"polyrail", c.network, r.Op, strconv.Itoa(r.Ranks), strconv.Itoa(r.Bytes), strconv.Itoa(r.Iterations)}
	for _, x := range []float64{r.MinMicros, r.AvgMicros, r.P50Micros, r.P95Micros, r.P99Micros, r.MaxMicros, r.CPUMicros} {
		row = append(row, strconv.FormatFloat(x, 'f', 1, 64))
	}
	return c.write(append(row, strconv.FormatInt(r.Errors, 10)))
}

func (c *CSV) write(row []string) error {
	if err := c.w.Write(row); err != nil {
		return err
	}
	c.w.Flush() // a line is seen as soon as it is measured
	return c.w.Error()
}

// Row is what a chart shows of a line of such a file.
type Row struct {
	System, Network, Op string
	Ranks, Bytes        int
	P50Micros           float64
}

// Limits of a file.
const (
	maxRows     = 100_000
	maxCSVBytes = 16 << 20
)

// ReadCSV reads results, of any program. The columns of Row must be there, in any order. Files may be
// put together: the header may come again.
func ReadCSV(r io.Reader) (rows []Row, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxCSVBytes+1))
	if err == nil && len(text) > maxCSVBytes {
		err = fmt.Errorf("more than %d bytes", maxCSVBytes)
	}
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // spreadsheets put it there
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment = '#'
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	} else if err != nil {
		return nil, err
	}
	names := [...]string{"system", "network", "op", "ranks", "bytes", "p50_us"}
	var at [len(names)]int
	for i, name := range names {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, fmt.Errorf("line 1: no column %q", name)
		}
	}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return nil, err
		}
		if slices.Equal(fields, header) {
			continue
		}
		line, _ := in.FieldPos(0)
		row := Row{System: fields[at[0]], Network: fields[at[1]], Op: fields[at[2]]}
		var faults [len(names)]error
		row.Ranks, faults[3] = strconv.Atoi(fields[at[3]])
		row.Bytes, faults[4] = strconv.Atoi(fields[at[4]])
		row.P50Micros, faults[5] = strconv.ParseFloat(fields[at[5]], 64)
		for i, name := range names {
			if faults[i] != nil {
				return nil, fmt.Errorf("line %d: column %s: %q is no number", line, name, fields[at[i]])
			}
		}
		if row.Ranks < 1 || row.Bytes < 0 || !(row.P50Micros > 0 && row.P50Micros <= math.MaxFloat64) {
			return nil, fmt.Errorf("line %d: ranks and p50_us must be positive, and finite, and bytes not negative", line)
		}
		if rows = append(rows, row); len(rows) > maxRows {
			return nil, fmt.Errorf("more than %d lines", maxRows)
		}
	}
}
