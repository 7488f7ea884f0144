package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail/cmd/internal/settings"
)

const rootLong = `node runs collective operations over all of a host's network rails at once.

Everything that a flag says can also be said by the environment and by a YAML file:

  --rank-timeout 3s     POLYRAIL_RANK_TIMEOUT=3s     rank-timeout: 3s

The command line wins over the environment, the environment over the file that
--config names. Several rails are separated by spaces, other lists by commas; in the
file they may be lists. One file can serve all commands: each takes its own keys.

Exit codes: 0 success, 1 failure, 2 wrong use.`

const rootExample = `  # See it work, without any set-up:
  node demo

  # Measure four processes on this host:
  node bench --local 4

  # A member of a cluster, on a host with two NICs:
  node run --name a --bind 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:eth2
  node run --bind 10.0.0.2:7946 --join 10.0.0.1:7946 --rail r0=tcp:eth1 --rail r1=tcp:eth2`

// helpColumns is the width of --help.
const helpColumns = 100

// common are the flags that every command has.
type common struct {
	config   string
	logLevel slog.Level
}

// newRoot makes the command tree, with nothing shared between two calls.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "node",
		Short:         "Collective operations over all network rails at once",
		Long:          rootLong,
		Example:       rootExample,
		Version:       versionLine(),
		SilenceErrors: true, // main prints them, in one line
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q (see node --help)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) { // it repeats the value, which may hold a password
			err = fmt.Errorf("--%s: %w", invalid.GetFlag().Name, settings.Cause(invalid))
		}
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.Flags().Bool("version", false, "say what this command was built of") // cobra does
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d ", helpColumns)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", wrapped))
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Apply(cmd.Context(), cmd.Flags(), knownKey(root)); err != nil {
			return &usageError{err}
		}
		return nil
	}
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newRun(), newBench(), newTune(), newChart(), newDemo(), newChaos(), newSharp(), newSimulate(),
		newStatus(), newTop(), newKeys(), newVersion())
	for _, cmd := range root.Commands() {
		if cmd.Args = noArguments; cmd.Name() == "chart" {
			cmd.Args = cobra.ArbitraryArgs
		}
		cmd.Flags().SortFlags = false // --help shows them in the order of their definition: related ones together
	}
	return root
}

// newHelp is cobra's, but that a command which isn't there is wrong use.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, unknown, err := root.Find(args)
			if err != nil || len(unknown) > 0 {
				return usagef("unknown command %q (see node --help)", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag() // shown with the others
			return cmd.Help()
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q (see %s --help)", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// knownKey tells which keys a configuration file may hold: the flags of all commands.
func knownKey(root *cobra.Command) func(string) bool {
	return func(key string) bool {
		for _, cmd := range commands(root) {
			if cmd.Flags().Lookup(key) != nil {
				return true
			}
		}
		return false
	}
}

// commands are those below root that have flags.
func commands(root *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() {
			all = append(all, commands(cmd)...)
		} else if cmd.Flags().Lookup(settings.ConfigFlag) != nil {
			all = append(all, cmd)
		}
	}
	return all
}

// register defines the common flags; level is the command's default.
func (c *common) register(fs *pflag.FlagSet, level slog.Level) {
	c.logLevel = level
	fs.StringVar(&c.config, settings.ConfigFlag, "", "YAML `FILE` whose keys are the names of flags")
	settings.Var(fs, &c.logLevel, "log-level", "LEVEL", parseLevel, formatLevel, "least level that is logged to standard error: debug, info, warn, error")
}

func (c *common) logger(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: c.logLevel}))
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("%q is not a level (debug, info, warn, error)", s)
	}
	return l, nil
}

func formatLevel(l slog.Level) string { return strings.ToLower(l.String()) }
