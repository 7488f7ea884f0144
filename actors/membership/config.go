package membership

import (
	"log/slog"
	"time"

	"github.com/polyrail/polyrail/actors/aggregation"
	"github.com/polyrail/polyrail/actors/balancing"
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/cluster"
	"github.com/polyrail/polyrail/collective/sharp"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors"
)

// Config is what a node's control plane needs. The root package validates and fills it.
type Config struct {
	Node        string
	Incarnation uint64
	Host        string   // where it runs; empty: unknown
	Settings    []string // see view.Ask
	Engine      engine.Config
	Balancing   balancing.Config
	Aggregation aggregation.Config // no rails: it aggregates for nobody
	SharpRails  []string           // names of those on which communicators have trees made …
	// … with fragments of so many bytes, of nodes with so many children; 0: any number.
	TreeFragment, TreeRadix int
	TreeResults             sharp.Results // how results go to ranks

	OperationTimeout time.Duration                              // 0: none
	Table            func(rails []string) (*table.Table, error) // what a communicator begins with

	Rails   railactors.Config
	Cluster cluster.Config
	View    view.Timing
	Logger  *slog.Logger
}
