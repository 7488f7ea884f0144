package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/test/faults"
)

const chaosLong = `chaos starts a cluster in this process, with real sockets on loopback, runs allreduce after
allreduce on it, and breaks it as a scenario says. It shows a time line, compares every element
with a reference, and fails if anything came out otherwise than the scenario expects.

A scenario is text, a statement a line; # begins a comment:

  nodes 4
  rails 2
  operations 100                    # at least; they go on until the last step
  sizes 8 64KiB 1MiB                # of the operations, in turn
  pause 10ms                        # between two of them
  speed 100MiB                      # a second, of each rail
  at 1s cut node1 rail0             # connections break, new ones are refused
  at 2s heal node1 rail*            # ends cut and silence, here of all rails
  at 3s silence node1 rail1         # bytes stay where they are, nobody is told
  at 4s reset node2 rail1           # connections break once
  at 5s delay node0 rail0 5ms
  at 5s rate node0 rail1 1MiB
  at 5s duplicate node0 rail0       # or corrupt, replay, stale: a frame comes that must not
  at 5s panic node1 pair            # or peer, rail, rails, node, coordinator, …: its actors panic
  at 6s kill node3                  # or stop
  at 7s part node0 node1            # gossip passes within the parts only, until: unite
  at 8s unite
  expect lost node3                 # or expect broken node1; without it: expect done

On loopback silence and stop hold what a node itself reads and writes. Without --scenario,
--seed draws one.`

type chaosFlags struct {
	common
	scenario string
	seed     uint64
}

func newChaos() *cobra.Command {
	f := chaosFlags{seed: 1}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break a local cluster by plan and check that nothing is lost",
		Long:  chaosLong,
		Example: `  node chaos --scenario rails.txt
  node chaos --seed 7`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fs := cmd.Flags(); fs.Changed("scenario") && fs.Changed("seed") {
				return usagef("--seed draws a scenario, and --scenario names one: choose one")
			}
			s, err := f.load(cmd.Context())
			if err != nil {
				return &usageError{err}
			}
			return f.run(cmd.Context(), s, cmd.OutOrStdout(), f.logger(cmd))
		},
	}
	cmd.Flags().StringVar(&f.scenario, "scenario", "", "`FILE` of the scenario")
	cmd.Flags().Uint64Var(&f.seed, "seed", f.seed, "`NUMBER` of a scenario at random, where no file is given")
	f.register(cmd.Flags(), slog.LevelError)
	return cmd
}

func (f *chaosFlags) load(ctx context.Context) (faults.Scenario, error) {
	if f.scenario == "" {
		return onLoopback(faults.Random(f.seed)), nil
	}
	text, err := settings.ReadFile(ctx, f.scenario)
	if err != nil {
		return faults.Scenario{}, fmt.Errorf("--scenario: %w", err)
	}
	s, err := faults.Parse(string(text))
	if err != nil {
		return s, fmt.Errorf("%s: %w", f.scenario, err)
	}
	return s, nil
}

// onLoopback replaces what loopback can't do: its link has no plug to pull.
func onLoopback(s faults.Scenario) faults.Scenario {
	for i := range s.Steps {
		if s.Steps[i].Do == faults.Unplug {
			s.Steps[i].Do = faults.Silence
		}
	}
	return s
}

func (f *chaosFlags) run(ctx context.Context, s faults.Scenario, w io.Writer, log *slog.Logger) error {
	fmt.Fprintf(w, "%v\n", s)
	report, err := faults.Run(ctx, s, faults.Options{Loopback: true, Logger: log, Report: func(e faults.Event) {
		fmt.Fprintf(w, "%9.3fs  %s\n", e.At.Seconds(), e.Text)
	}})
	if report == nil {
		return err
	}
	fmt.Fprintf(w, "\n%d operations, the slowest took %v.\n", report.Operations, report.Slowest.Round(time.Microsecond))
	for i, rails := range report.Rails {
		for _, r := range rails {
			printRail(w, i, r)
		}
	}
	for _, step := range report.Unfelt() {
		fmt.Fprintf(w, "nobody felt: %v\n", step)
	}
	if err != nil {
		return errors.Join(errors.New("it did not come out as expected"), err)
	}
	fmt.Fprintln(w, "OK: every element right, everything as expected.")
	return nil
}

func printRail(w io.Writer, node int, r polyrail.RailStatus) {
	fmt.Fprintf(w, "  node%d %-6s sent %-10s again %-10s connections made again %d, silences %d, false alarms %d\n", node, r.Name,
		settings.FormatSize(int(r.BytesSent)), settings.FormatSize(int(r.ResentBytes)), r.Reconnects, r.Silences, r.FalseAlarms)
}
