package plots

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The files that Write makes.
const (
	SharesCSV, SharesPicture = "shares.csv", "shares.png"
	RatesCSV, RatesPicture   = "rates.csv", "rates.png"
)

// Columns of the CSV files: a line for each rail and moment. docs/balancing.md explains them.
var (
	sharesColumns = []string{"seconds", "bytes", "operation", "table", "rail", "share"}
	ratesColumns  = []string{"seconds", "bytes", "rail", "sent_bytes", "received_bytes", "sent_mb_s", "received_mb_s"}
)

// Write puts the recording into a directory that exists. size writes a size in bytes for a person.
func (r *Recording) Write(dir string, size func(int) string) error {
	shares, rates := r.Shares(), r.Rates()
	return errors.Join(
		writeFile(filepath.Join(dir, SharesCSV), func(w io.Writer) error { return r.writeShares(w, shares) }),
		writeFile(filepath.Join(dir, RatesCSV), func(w io.Writer) error { return r.writeRates(w, rates) }),
		r.draw(filepath.Join(dir, SharesPicture), r.shareLines(shares), size),
		r.draw(filepath.Join(dir, RatesPicture), r.rateLines(rates), size),
	)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (r *Recording) writeShares(w io.Writer, shares []Share) error {
	out := csv.NewWriter(w)
	rows := [][]string{sharesColumns}
	for i := range shares {
		s := &shares[i]
		for rail, part := range s.Parts {
			rows = append(rows, []string{decimals(s.At.Seconds(), 6), strconv.Itoa(s.Bytes), strconv.Itoa(s.Operations),
				strconv.FormatUint(uint64(s.Table), 10), r.Rails[rail], decimals(part, 4)})
		}
	}
	return out.WriteAll(rows) // flushes
}

func (r *Recording) writeRates(w io.Writer, rates []Rate) error {
	out := csv.NewWriter(w)
	rows := [][]string{ratesColumns}
	for i := range rates {
		x := &rates[i]
		for rail, c := range x.Rails {
			rows = append(rows, []string{decimals(x.At.Seconds(), 6), strconv.Itoa(x.Bytes), r.Rails[rail],
				strconv.FormatUint(c.Sent, 10), strconv.FormatUint(c.Received, 10), decimals(x.Sent[rail]/1e6, 3), decimals(x.Received[rail]/1e6, 3)})
		}
	}
	return out.WriteAll(rows)
}

func decimals(x float64, n int) string { return strconv.FormatFloat(x, 'f', n, 64) }

// lines are a picture's: one for each rail.
type lines struct {
	title, unit string
	top         float64 // of the axis; 0: by what is drawn
	points      []plotter.XYs
	step        plotter.StepKind
}

// palette is told apart by all eyes (Okabe and Ito).
var palette = []color.RGBA{
	{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, {R: 0xe6, G: 0x9f, A: 0xff}, {G: 0x9e, B: 0x73, A: 0xff}, {R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	{R: 0xd5, G: 0x5e, A: 0xff}, {R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, {R: 0xf0, G: 0xe4, B: 0x42, A: 0xff}, {A: 0xff},
}

func (r *Recording) shareLines(shares []Share) lines {
	l := lines{title: "Share of each rail", unit: "% of the bytes that rank 0 sent", top: 100, step: plotter.PreStep, points: make([]plotter.XYs, len(r.Rails))}
	for i := range shares {
		for rail, part := range shares[i].Parts {
			l.points[rail] = append(l.points[rail], plotter.XY{X: shares[i].At.Seconds(), Y: 100 * part})
		}
	}
	return l
}

func (r *Recording) rateLines(rates []Rate) lines {
	l := lines{title: "Rate of each rail", unit: "MB/s that rank 0 sent", points: make([]plotter.XYs, len(r.Rails))}
	for i := range rates {
		for rail, rate := range rates[i].Sent {
			l.points[rail] = append(l.points[rail], plotter.XY{X: rates[i].At.Seconds(), Y: rate / 1e6})
		}
	}
	return l
}

// draw makes a picture with a line for each rail, and a mark where each size begins.
func (r *Recording) draw(file string, l lines, size func(int) string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = l.title, "seconds", l.unit
	p.Title.Padding, p.BackgroundColor = vg.Points(6), color.White
	p.Legend.Top = true
	for rail, points := range l.points {
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: rail %s: %w", file, r.Rails[rail], err)
		}
		line.Color, line.Width, line.StepStyle = palette[rail%len(palette)], vg.Points(1.2), l.step
		p.Add(line)
		p.Legend.Add(r.Rails[rail], line)
	}
	if p.X.Min, p.Y.Min = 0, 0; l.top > 0 {
		p.Y.Max = l.top
	}
	p.Y.Max = max(p.Y.Max, 1) * 1.12 // room for the sizes and the legend
	if err := r.markSizes(p, size); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return p.Save(24*vg.Centimeter, 12*vg.Centimeter, file)
}

// markSizes draws a line where the operations of another size begin, and writes the size there.
func (r *Recording) markSizes(p *plot.Plot, size func(int) string) error {
	marks := plotter.XYLabels{}
	for _, s := range r.sizes {
		x := s.notes[0].At.Seconds()
		line, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = color.Gray{Y: 0xb0}, []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(line)
		marks.XYs = append(marks.XYs, plotter.XY{X: x, Y: 0.95 * p.Y.Max})
		marks.Labels = append(marks.Labels, " "+size(s.notes[0].Bytes))
	}
	if len(marks.Labels) == 0 {
		return nil
	}
	labels, err := plotter.NewLabels(marks)
	if err != nil {
		return err
	}
	p.Add(labels)
	return nil
}
