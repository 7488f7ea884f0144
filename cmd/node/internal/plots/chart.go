package plots

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	Op     string
	Panels []Panel
}

const (
	panelWidth, chartHeight = 12 * vg.Centimeter, 9.5 * vg.Centimeter
	legendHeight, margin    = 0.9 * vg.Centimeter, 0.4 * vg.Centimeter
)

// Draw writes the chart to a file, in the format that its name ends in: svg, png or pdf.
func (c *Chart) Draw(file string, size func(int) string) error {
	format := strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
	width := panelWidth * vg.Length(len(c.Panels))
	canvas, err := draw.NewFormattedCanvas(width, chartHeight, format)
	if err != nil {
		return err
	}
	// A background of its own: the page's may be dark.
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	systems, top := c.systems(), c.top()
	var row []*plot.Plot
	for i := range c.Panels {
		p, err := c.Panels[i].plot(systems, top, size)
		if err != nil {
			return err
		}
		p.X.Label.Text, p.X.Label.Padding = "size of the "+c.Op, vg.Points(4)
		row = append(row, p)
	}
	row[0].Y.Label.Text = "bus bandwidth, Mbit/s"
	if err := drawLegend(draw.Crop(all, margin, -margin, chartHeight-legendHeight, 0), systems); err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: margin, PadBottom: margin, PadLeft: margin, PadRight: margin}
	below := draw.Crop(all, 0, 0, 0, -legendHeight)
	for i, at := range plot.Align([][]*plot.Plot{row}, tiles, below)[0] {
		row[i].Draw(at)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return err
	}
	// Who reads it may lack the font that the text was measured with.
	drawn := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,sans-serif;"))
	return os.WriteFile(file, drawn, 0o644)
}

// systems are those of all panels: one has the same color everywhere.
func (c *Chart) systems() (names []string) {
	for _, p := range c.Panels {
		for _, s := range p.Series {
			if !slices.Contains(names, s.System) {
				names = append(names, s.System)
			}
		}
	}
	return names
}

// drawLegend writes the systems side by side.
func drawLegend(at draw.Canvas, systems []string) error {
	for i, system := range systems {
		line, points, err := styled(plotter.XYs{{}}, i)
		if err != nil {
			return err
		}
		l := plot.NewLegend()
		l.TextStyle.Font.Variant = sans
		l.Top, l.Left, l.ThumbnailWidth, l.YOffs = true, true, vg.Centimeter, -margin/2
		l.Add(" "+system, line, points)
		l.Draw(at)
		at = draw.Crop(at, l.ThumbnailWidth+l.TextStyle.Width(" "+system)+2*margin, 0, 0, 0)
	}
	return nil
}

// sans is the variant of the fonts.
const sans = "Sans"

// styled is a line as the i-th system's are drawn.
func styled(xys plotter.XYs, i int) (*plotter.Line, *plotter.Scatter, error) {
	line, points, err := plotter.NewLinePoints(xys)
	if err != nil {
		return nil, nil, err
	}
	line.Color, line.Width = palette[i%len(palette)], vg.Points(1.6)
	points.Color, points.Shape, points.Radius = line.Color, shapes[i%len(shapes)], vg.Points(2.8)
	return line, points, nil
}

// shapes tell lines apart without their colors.
var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{},
	draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

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
func (p *Panel) plot(systems []string, top float64, size func(int) string) (*plot.Plot, error) {
	out := plot.New()
	for _, style := range []*text.Style{&out.Title.TextStyle, &out.X.Label.TextStyle, &out.Y.Label.TextStyle,
		&out.X.Tick.Label, &out.Y.Tick.Label} {
		style.Font.Variant = sans
	}
	out.Title.Text, out.Title.Padding = p.Network, vg.Points(8)
	out.X.Scale, out.X.Tick.Marker = plot.LogScale{}, sizeTicks{size}
	out.Y.Min, out.Y.Max, out.Y.Tick.Marker = 0, 1.1*top, rateTicks{}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, color.Gray{Y: 0xe0}
	out.Add(grid)
	for _, s := range p.Series {
		line, points, err := styled(s.xys(), slices.Index(systems, s.System))
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", p.Network, s.System, err)
		}
		out.Add(line, points)
	}
	widen(&out.X)
	if p.Limit > 0 {
		return out, p.drawLimit(out)
	}
	return out, nil
}

// widen gives a logarithmic axis on which there is one value room below and above it. By itself gonum
// makes that 1 less and 1 more, and a logarithm of what is not positive.
func widen(a *plot.Axis) {
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// drawLimit draws what the network could carry, and says so.
func (p *Panel) drawLimit(out *plot.Plot) error {
	limit := plotter.NewFunction(func(float64) float64 { return p.Limit })
	limit.Color, limit.Width = color.Gray{Y: 0x50}, vg.Points(1)
	limit.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	labels, err := plotter.NewLabels(plotter.XYLabels{
		XYs:    plotter.XYs{{X: out.X.Min, Y: p.Limit}},
		Labels: []string{fmt.Sprintf("sum of the rails: %g Mbit/s", p.Limit)},
	})
	if err != nil {
		return err
	}
	labels.TextStyle[0].Font.Variant, labels.Offset = sans, vg.Point{Y: vg.Points(4)}
	out.Add(limit, labels)
	return nil
}

func (s *Series) xys() (xys plotter.XYs) {
	for _, p := range s.Points {
		xys = append(xys, plotter.XY{X: float64(p.Bytes), Y: p.Mbit})
	}
	return xys
}

// sizeTicks marks every second power of two.
type sizeTicks struct{ size func(int) string }

// Ticks implements plot.Ticker.
func (t sizeTicks) Ticks(least, most float64) (ticks []plot.Tick) {
	const last = 60
	for power := 0; power <= last; power += 2 {
		bytes := float64(int64(1) << power)
		if bytes >= least && bytes <= most {
			ticks = append(ticks, plot.Tick{Value: bytes, Label: t.size(int(bytes))})
		}
	}
	return ticks
}

// rateTicks are gonum's, without decimals that say nothing.
type rateTicks struct{}

// Ticks implements plot.Ticker.
func (rateTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', -1, 64)
		}
	}
	return ticks
}
