package observe

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	looked "github.com/polyrail/polyrail/actors/observe"
)

// dashboard is what Grafana's model of a dashboard requires, as far as docs/grafana.json uses it.
// Unknown fields of a panel are Grafana's business.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  *struct{ Type, UID string }
	Targets     []struct {
		RefID, Expr string
		Datasource  *struct{ Type, UID string }
	}
	FieldConfig *struct {
		Defaults  map[string]any
		Overrides []any
	}
}

// TestTheDashboardIsOneThatGrafanaTakes checks the file against Grafana's schema of dashboards:
// fields that must be there, ids that must differ, a grid of 24 columns in which nothing overlaps.
// Each expression names metrics that there are, with labels that they have.
func TestTheDashboardIsOneThatGrafanaTakes(t *testing.T) {
	text, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || len(d.UID) > 40 || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) < 20 {
		t.Errorf("uid %q, title %q, schema version %d, %d panels", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if p.Title == "" || ids[p.ID] || p.ID < 1 || !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) {
			t.Errorf("panel %d %q of type %q", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("panel %q is outside the grid: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.FieldConfig == nil || p.Datasource == nil || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q lacks targets, a field configuration or the data source", p.Title)
		}
		for _, target := range p.Targets {
			checkExpression(t, p.Title, target.Expr, variables)
		}
	}
}

var (
	metricName = regexp.MustCompile(`polyrail_\w+`)
	variable   = regexp.MustCompile(`\$(\w+)`)
	grouping   = regexp.MustCompile(`by \(([^)]*)\)`)
)

func checkExpression(t *testing.T, panel, expr string, variables []string) {
	t.Helper()
	var labels []string
	for _, name := range metricName.FindAllString(expr, -1) {
		i := slices.IndexFunc(looked.Metrics(), func(m looked.Metric) bool {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if m.Kind == "histogram" && strings.TrimSuffix(name, suffix) == m.Name {
					return true
				}
			}
			return m.Name == name && m.Kind != "histogram"
		})
		if i < 0 {
			t.Errorf("panel %q asks for %s, which there is not", panel, name)
			return
		}
		labels = append(labels, looked.Metrics()[i].Labels...)
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, label := range strings.Split(m[1], ", ") {
			if label != "le" && label != "instance" && !slices.Contains(labels, label) {
				t.Errorf("panel %q groups by %s: %s", panel, label, expr)
			}
		}
	}
	for _, m := range variable.FindAllStringSubmatch(expr, -1) {
		if !slices.Contains(variables, m[1]) {
			t.Errorf("panel %q uses $%s: %s", panel, m[1], expr)
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		t.Errorf("panel %q: %s", panel, expr)
	}
}
