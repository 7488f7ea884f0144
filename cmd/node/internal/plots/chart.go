package plots

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Point is one size of one system: its rate.
type Point struct {
	Bytes int
	Mbit  float64 // per second
}

// Series is one system's line.
type Series struct {
	System string
	Points []Point // ascending by size
}

// Panel is one network's picture.
type Panel struct {
	Network string
	Series  []Series
	Limit   float64 // Mbit/s that the network could carry; 0: not drawn
}

// Chart is panels side by side, drawn alike so that they can be compared.
type Chart struct {
	Title  string
	Panels []Panel
}

const (
	panelWidth, chartHeight = 11 * vg.Centimeter, 9 * vg.Centimeter
	margin                  = 0.3 * vg.Centimeter
)

// Draw writes the chart to a file, in the format that its name ends in: svg, png or pdf.
func (c *Chart) Draw(file string, size func(int) string) (err error) {
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	if !slices.Contains([]string{"svg", "png", "pdf"}, format) {
		return fmt.Errorf("%s: its name must end in .svg, .png or .pdf", file)
	}
	width := panelWidth * vg.Length(len(c.Panels))
	canvas, err := draw.NewFormattedCanvas(width, chartHeight, format)
	if err != nil {
		return err
	}
	// A background of its own: the page's may be dark.
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	var row []*plot.Plot
	top := c.top()
	for i := range c.Panels {
		p, err := c.Panels[i].plot(top, size)
		if err != nil {
			return err
		}
		row = append(row, p)
	}
	row[0].Y.Label.Text = c.Title
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin}
	for i, at := range plot.Align([][]*plot.Plot{row}, tiles, all)[0] {
		row[i].Draw(at)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}

// top is the highest rate of all panels.
func (c *Chart) top() (most float64) {
	for _, p := range c.Panels {
		most = max(most, p.Limit)
		for _, s := range p.Series {
			for _, point := range s.Points {
				most = max(most, point.Mbit)
			}
		}
	}
	return most
}

// plot draws the lines of one network under a scale that ends a little above top.
func (p *Panel) plot(top float64, size func(int) string) (*plot.Plot, error) {
	out := plot.New()
	out.Title.Text, out.Title.Padding = p.Network, vg.Points(8)
	out.X.Label.Text = "size"
	out.X.Scale, out.X.Tick.Marker = plot.LogScale{}, sizeTicks{size}
	out.X.Tick.Label.Rotation, out.X.Tick.Label.XAlign, out.X.Tick.Label.YAlign = 0.6, text.XRight, text.YCenter
	out.Y.Min, out.Y.Max = 0, 1.06*top
	out.Legend.Top, out.Legend.Left, out.Legend.Padding = true, true, vg.Points(2)
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, color.Gray{Y: 0xe0}
	out.Add(grid)
	for i, s := range p.Series {
		line, points, err := plotter.NewLinePoints(s.xys())
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", p.Network, s.System, err)
		}
		line.Color, line.Width = palette[i%len(palette)], vg.Points(1.6)
		points.Color, points.Shape, points.Radius = line.Color, shapeOf(i), vg.Points(2.6)
		out.Add(line, points)
		out.Legend.Add(s.System, line, points)
	}
	if p.Limit > 0 {
		limit := plotter.NewFunction(func(float64) float64 { return p.Limit })
		limit.Color, limit.Width, limit.Dashes = color.Gray{Y: 0x50}, vg.Points(1), []vg.Length{vg.Points(4), vg.Points(3)}
		out.Add(limit)
		out.Legend.Add(fmt.Sprintf("sum of the rails, %g Mbit/s", p.Limit), limit)
	}
	return out, nil
}

// shapes tell lines apart without their colors.
var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{},
	draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

func shapeOf(i int) draw.GlyphDrawer { return shapes[i%len(shapes)] }

func (s *Series) xys() (xys plotter.XYs) {
	for _, p := range s.Points {
		xys = append(xys, plotter.XY{X: float64(p.Bytes), Y: p.Mbit})
	}
	return xys
}

// sizeTicks marks every fourth power of two.
type sizeTicks struct{ size func(int) string }

// Ticks implements plot.Ticker.
func (t sizeTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	const first, last = 0, 60
	for power := first; power <= last; power += 2 {
		bytes := float64(int64(1) << power)
		if bytes < least || bytes > most {
			continue
		}
		tick := plot.Tick{Value: bytes}
		if power%4 == 0 {
			tick.Label = t.size(int(bytes))
		}
		ticks = append(ticks, tick)
	}
	return ticks
}
