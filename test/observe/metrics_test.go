package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/polyrail/polyrail"
	looked "github.com/polyrail/polyrail/actors/observe"
	"github.com/polyrail/polyrail/test/testbed"
)

// watched starts nodes in memory that show themselves on loopback.
func watched(t *testing.T, nodes, rails int, adapt func(*polyrail.Config)) *testbed.Cluster {
	t.Helper()
	c, err := testbed.Start(t.Context(), testbed.Options{Nodes: nodes, Rails: rails, Balance: polyrail.BalanceMeasured,
		Adapt: func(cfg *polyrail.Config) {
			cfg.HTTP.Addr = "127.0.0.1:0"
			if adapt != nil {
				adapt(cfg)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// get asks a node, and returns the answer's text.
func get(t *testing.T, node *polyrail.Node, path string, header ...string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// reduce runs allreduces of so many bytes on all ranks.
func reduce(t *testing.T, c *testbed.Cluster, comms []*polyrail.Communicator, operations, bytes int) {
	t.Helper()
	err := c.Each(func(i int) error {
		buf := make([]float32, bytes/4)
		for range operations {
			if err := polyrail.AllReduce(t.Context(), comms[i], buf, polyrail.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMetricsTellWhatWasDoneAndPassTheLinter(t *testing.T) {
	c := watched(t, 2, 2, func(cfg *polyrail.Config) { cfg.Aggregate = []string{testbed.RailName(0)} })
	comms, err := c.Form(t.Context(), "train")
	if err != nil {
		t.Fatal(err)
	}
	reduce(t, c, comms, 3, 8)
	reduce(t, c, comms, 2, 1<<20)
	rails := testbed.RailName(0)
	c.Rails.Cut(testbed.NodeName(1), testbed.Device(0))
	reduce(t, c, comms, 1, 1<<20)
	c.Rails.Heal(testbed.NodeName(1), testbed.Device(0))

	_, text := get(t, c.Nodes[0], "/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`polyrail_operation_duration_seconds_count{communicator="train",kind="allreduce",size="256B"} 3`,
		`polyrail_operation_duration_seconds_count{communicator="train",kind="allreduce",size="1MiB"} 3`,
		fmt.Sprintf(`polyrail_operation_bytes_total{communicator="train",kind="allreduce",size="1MiB"} %v`, float64(3<<20)),
		`polyrail_operations_failed_total{communicator="train",kind="allreduce",size="1MiB"} 0`,
		`polyrail_communicators{communicator="train"} 1`,
		`polyrail_communicator_ranks{communicator="train"} 2`,
		`polyrail_cluster_members 2`,
		`polyrail_node_ready 1`,
		`polyrail_aggregation_groups 0`,
		`polyrail_events_total{kind="rail down"} 1`,
		fmt.Sprintf(`polyrail_rail_up{rail="%s"}`, rails),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, ours(text))
		}
	}
}

// ours are the lines of the node's own metrics that carry values.
func ours(text string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "polyrail_") && !strings.Contains(line, "_bucket") {
			lines += line
		}
	}
	return lines
}

// documented are the rows of the table in docs/metrics.md: name, kind and labels.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(polyrail_[a-z_]+)` \\| (\\w+) \\| ([^|]*) \\| (.*) \\|$").
		FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2] + " " + m[3] + " " + m[4]
	}
	return rows
}

func TestMetricsAreListedInTheDocs(t *testing.T) {
	rows := documented(t)
	for _, m := range looked.Metrics() {
		want := m.Kind + " " + strings.Join(m.Labels, ", ") + " " + m.Help
		if rows[m.Name] != want {
			t.Errorf("docs/metrics.md should have\n| `%s` | %s | %s | %s |\nand has %q", m.Name, m.Kind,
				strings.Join(m.Labels, ", "), m.Help, rows[m.Name])
		}
		delete(rows, m.Name)
	}
	for name := range rows {
		t.Errorf("docs/metrics.md lists %s, which there is not", name)
	}
}

func TestManyCommunicatorsShareTheLastName(t *testing.T) {
	c := watched(t, 1, 1, nil)
	for i := range 130 {
		if _, err := c.Nodes[0].Communicator(t.Context(), fmt.Sprint("c", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	_, text := get(t, c.Nodes[0], "/metrics")
	for _, want := range []string{`polyrail_communicators{communicator="c127"} 1`,
		`polyrail_communicators{communicator="(other)"} 2`, `polyrail_communicators_formed_total{communicator="(other)"} 2`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, `"c128"`) {
		t.Error("names without a limit")
	}
}
