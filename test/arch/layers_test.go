package arch

import (
	"fmt"
	"go/token"
	"strings"
	"testing"
)

// layer is a part of the tree, and what its files may import besides the standard library.
type layer struct {
	dir      string
	internal []string // directories of this module, what is below them included; "." is the root package
	external []string // import paths, what is below them included
}

const (
	actorLib   = "github.com/asynkron/protoactor-go/actor"
	protobuf   = "google.golang.org/protobuf"
	memberlist = "github.com/hashicorp/memberlist"
	goleak     = "go.uber.org/goleak"
	msgpack    = "github.com/hashicorp/go-msgpack/v2" // what memberlist speaks
	rapid      = "pgregory.net/rapid"
	prometheus = "github.com/prometheus/client_golang/prometheus"
	otel       = "go.opentelemetry.io/otel" // the API; what records and exports spans is the user's
)

// layers stand from the top to the bottom; the deepest directory that holds a file is its
// layer. Imports point down only.
var layers = []layer{
	{dir: ".", internal: []string{"actors", "cluster", "railactors", "messages", "collective"}, external: []string{actorLib, otel}},
	{dir: "cmd", internal: []string{".", "cmd", "railactors/transport", "collective/op", "collective/schedule", "test/faults", "test/testbed"}, external: []string{"github.com/spf13", "go.yaml.in/yaml", "github.com/google/pprof/profile", "github.com/schollz/progressbar", "golang.org/x/term", "gonum.org/v1/plot"}},
	// It plans with the cores that a node runs.
	{dir: "cmd/node/internal/simulate", internal: []string{".", "cmd/node/internal/measure", "collective", "messages/wire", "test/testbed"}},
	{dir: "cmd/libpolyrail", internal: []string{".", "cmd/internal", "cmd/libpolyrail"},
		external: []string{"github.com/spf13/pflag", "golang.org/x/sys/unix"}},
	{dir: "examples", internal: []string{"."}},
	{dir: "test", internal: []string{".", "actors", "cluster", "railactors", "messages", "collective", "test"}, external: []string{actorLib, protobuf, "golang.org/x/sys", "github.com/orcaman/concurrent-map"}},
	{dir: "test/observe", internal: []string{".", "actors", "railactors", "test/testbed"},
		external: []string{prometheus, "github.com/google/pprof/profile", "github.com/chromedp"}},
	{dir: "test/bubble"},
	{dir: "test/leaks", external: []string{goleak}},
	{dir: "test/seeds"},
	{dir: "test/program"},
	{dir: "actors"}, // no package of its own: those below stand here
	{dir: "actors/membership", internal: []string{"actors", "cluster", "railactors", "messages",
		"collective"}, external: []string{actorLib, protobuf}},
	{dir: "actors/communicator", internal: []string{"actors/engine", "actors/balancing",
		"railactors", "messages", "collective"}, external: []string{actorLib, protobuf}},
	{dir: "actors/balancing", internal: []string{"actors/engine", "actors/tuning", "railactors",
		"messages", "collective"}, external: []string{actorLib, protobuf}},
	// A node's face over HTTP.
	{dir: "actors/observe", internal: []string{"actors/membership", "actors/engine", "collective/lobby"},
		external: []string{prometheus}},
	// Beside the communicators: a node may aggregate for others and be in none of them.
	{dir: "actors/aggregation", internal: []string{"railactors", "messages", "collective"},
		external: []string{actorLib}},
	// No actors.
	{dir: "actors/engine", internal: []string{"railactors", "messages/wire", "collective"}},
	{dir: "actors/tuning", internal: []string{"collective", "railactors/disk"}, external: []string{"go.yaml.in/yaml"}},
	{dir: "cluster", internal: []string{"cluster", "messages", "collective"}, external: []string{memberlist, msgpack, protobuf}},
	{dir: "cluster/redisstore", internal: []string{"cluster", "messages"},
		external: []string{"github.com/redis/go-redis/v9"}},
	{dir: "cluster/dirstore", internal: []string{"cluster"}},
	{dir: "railactors", internal: []string{"railactors", "messages", "collective"}, external: []string{actorLib, protobuf}},
	{dir: "railactors/board", internal: []string{"railactors/transport", "collective/op"}},
	{dir: "railactors/dispatch", external: []string{actorLib}},
	{dir: "railactors/supervise", external: []string{actorLib}},
	{dir: "railactors/affinity", external: []string{"golang.org/x/sys/unix"}},
	{dir: "railactors/memory", internal: []string{"collective/fault"}, external: []string{"golang.org/x/sys/unix"}},
	{dir: "railactors/transport", internal: []string{"railactors/transport", "collective/fault"}, external: []string{"golang.org/x/sys/unix", "golang.org/x/sys/cpu"}},
	{dir: "railactors/transport/secure/keys", internal: []string{"railactors/disk"}},
	{dir: "railactors/disk"},
	{dir: "railactors/transport/fault", internal: []string{"railactors/transport", "messages/wire"}},
	{dir: "railactors/transport/nic", internal: []string{"railactors/transport"},
		external: []string{"golang.org/x/sys/unix", "github.com/vishvananda/netlink"}},
	{dir: "messages", internal: []string{"messages", "collective/op"}, external: []string{protobuf}},
	{dir: "messages/wire", internal: []string{"collective/op"}},
	{dir: "collective", internal: []string{"collective"}, external: []string{"golang.org/x/sys/cpu"}},
	{dir: "collective/op"},
	{dir: "collective/fault", internal: []string{"collective/op"}},
}

// testOnly is what any test may import besides.
var testOnly = layer{
	internal: []string{"railactors/dispatch", "railactors/transport", "test/bubble", "test/faults", "test/leaks", "test/program", "test/testbed", "test/seeds"},
	external: []string{goleak, msgpack, rapid},
}

// layerOf is the deepest layer that holds dir.
func layerOf(dir string) layer {
	best := layers[0]
	for _, l := range layers[1:] {
		if under(dir, l.dir) && len(l.dir) > len(best.dir) {
			best = l
		}
	}
	return best
}

// allows reports whether the layer's files may import p.
func (l layer) allows(p string) bool {
	if p == module || strings.HasPrefix(p, module+"/") {
		dir := strings.TrimPrefix(strings.TrimPrefix(p, module), "/")
		for _, ok := range l.internal {
			if ok == "." && dir == "" || dir != "" && under(dir, ok) {
				return true
			}
		}
		return false
	}
	for _, ok := range l.external {
		if under(p, ok) {
			return true
		}
	}
	return !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") // the standard library
}

func importsPointDown(s *source) (bad []string) {
	l := layerOf(s.dir())
	s.imports(func(pos token.Pos, p string) {
		own := s.isTest() && strings.TrimPrefix(strings.TrimPrefix(p, module), "/") == strings.TrimPrefix(s.dir(), ".")
		if own || l.allows(p) || s.isTest() && testOnly.allows(p) {
			return
		}
		bad = append(bad, fmt.Sprintf("%s: %q must not import %q (see the layers in test/arch)", s.at(pos), s.dir(), p))
	})
	return bad
}

func TestImportsPointDown(t *testing.T) {
	samples(t, importsPointDown, []sample{
		{"actors/membership/x.go", `package x; import _ "github.com/polyrail/polyrail/railactors"`, false},
		{"railactors/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/engine"`, true},
		{"actors/engine/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/membership"`, true},
		{"actors/communicator/x.go", `package x; import _ "github.com/polyrail/polyrail/cluster"`, true},
		{"actors/balancing/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/communicator"`, true},
		{"actors/balancing/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/engine"`, false},
		{"actors/engine/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/balancing"`, true},
		{"actors/aggregation/x.go", `package x; import _ "github.com/polyrail/polyrail/actors/engine"`, true},
		{"actors/engine/x.go", `package x; import _ "github.com/asynkron/protoactor-go/actor"`, true},
		{"railactors/x.go", `package x; import _ "github.com/polyrail/polyrail/cluster"`, true},
		{"cluster/x.go", `package x; import _ "github.com/polyrail/polyrail/railactors"`, true},
		{"collective/task/x.go", `package x; import _ "github.com/polyrail/polyrail/messages/wire"`, true},
		{"collective/op/x.go", `package x; import _ "github.com/polyrail/polyrail/collective/fault"`, true},
		{"railactors/x.go", `package x; import _ "github.com/polyrail/polyrail"`, true},
		{"railactors/x.go", `package x; import _ "github.com/asynkron/protoactor-go/remote"`, true},
		{"examples/allreduce/main.go", `package main; import _ "github.com/polyrail/polyrail/actors/membership"`, true},
		{"examples/allreduce/main.go", `package main; import _ "github.com/polyrail/polyrail"`, false},
		{"polyrail.go", `package x; import _ "github.com/polyrail/polyrail/actors/membership"`, false},
		{"polyrail.go", `package x; import _ "github.com/polyrail/polyrail/test/sim"`, true},
		{"polyrail_test.go", `package x_test; import _ "github.com/polyrail/polyrail"`, false},
		{"collective/plan/x.go", `package x; import _ "pgregory.net/rapid"`, true},
		{"collective/plan/x_test.go", `package x; import _ "pgregory.net/rapid"`, false},
		{"collective/plan/x.go", `package x; import _ "golang.org/x/sys/unix"`, true},
		{"collective/reduce/x.go", `package x; import _ "golang.org/x/sys/cpu"`, false},
	})
	everywhere(t, importsPointDown)
}
