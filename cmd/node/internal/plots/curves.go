package plots

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// Curves are times against something, on logarithmic scales.
type Curves struct {
	Title, X string
	Lines    []Curve
	Label    func(x float64) string // of a mark of X
}

// Curve is one line.
type Curve struct {
	Name   string
	Points []Moment // ascending by X
}

// Moment is a point of a curve; both are positive.
type Moment struct{ X, Micros float64 }

// Draw writes the curves to a file, in the format that its name ends in: svg, png or pdf.
func (c *Curves) Draw(file string) error {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = sans
	}
	p.Title.Text, p.Title.Padding = c.Title, vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = c.X, "microseconds"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = decades{}
	p.BackgroundColor = color.White
	p.Legend.Top, p.Legend.Left = true, true
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xf0}
	p.Add(grid)
	var marks constantTicks
	for i, l := range c.Lines {
		var xys plotter.XYs
		for _, m := range l.Points {
			xys = append(xys, plotter.XY{X: m.X, Y: m.Micros})
			if !slices.ContainsFunc(marks, func(t plot.Tick) bool { return t.Value == m.X }) {
				marks = append(marks, plot.Tick{Value: m.X, Label: c.Label(m.X)})
			}
		}
		line, points, err := styled(xys, i)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		p.Add(line, points)
		p.Legend.Add(l.Name, line, points)
	}
	p.X.Tick.Marker = marks
	widen(&p.X)
	widen(&p.Y)
	return p.Save(16*vg.Centimeter, 11*vg.Centimeter, file)
}

// constantTicks are the marks of what was simulated.
type constantTicks []plot.Tick

// Ticks implements plot.Ticker.
func (t constantTicks) Ticks(float64, float64) []plot.Tick { return t }

// decades marks powers of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for v := 0.01; v <= 1e12; v *= 10 {
		if v >= least/2 && v <= most*2 {
			ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
		}
	}
	return ticks
}
