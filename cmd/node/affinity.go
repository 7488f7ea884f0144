package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/node/internal/settings"
)

// railCores says which cores a rail's readers and writers run on.
type railCores struct {
	rail  string
	cores []int
}

// affinity is what --affinity says: the same as cpus= of --rail, apart from it, so that one
// set of rails can be measured with several assignments of cores.
type affinity []railCores

func (a *affinity) register(fs *pflag.FlagSet) {
	settings.List(fs, (*[]railCores)(a), "affinity", "RAIL=LIST", " \t\n", parseRailCores, formatRailCores,
		"cores of a rail's readers and writers, like r0=0-3,8; once for each rail.\nBy default they run on any core")
}

func parseRailCores(s string) (c railCores, err error) {
	name, list, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return c, fmt.Errorf("%q is not RAIL=LIST", s)
	}
	c.rail = name
	c.cores, err = polyrail.ParseCPUs(list)
	return c, err
}

func formatRailCores(c railCores) string { return c.rail + "=" + polyrail.FormatCPUs(c.cores) }

// apply gives the rails their cores.
func (a affinity) apply(rails []polyrail.Rail) error {
	for _, c := range a {
		i := slices.IndexFunc(rails, func(r polyrail.Rail) bool { return r.Name == c.rail })
		if i < 0 {
			return usagef("--affinity %s: there is no rail %q", formatRailCores(c), c.rail)
		}
		rails[i].CPUs = c.cores
	}
	return nil
}
