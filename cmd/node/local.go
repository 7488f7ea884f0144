package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/cmd/node/internal/children"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
	"github.com/polyrail/polyrail/test/testbed"
)

// Limits of what one host is asked to do.
const (
	maxLocal      = 256
	maxLocalRails = 16
)

// defaultRails is how many rails a local process has where nothing says otherwise.
const defaultRails = 2

// localFlags start a group of processes on this host in place of one that joins others.
type localFlags struct {
	size   localSize
	rails  bool // they are about rails, which memory would take everything from
	hosts  int  // that they stand for; 0: they are on the one that they are on
	sealed bool // they have keys, which are made for them
}

// localSize is how many processes there are, and how many rails each has.
type localSize struct{ processes, rails int }

// parseLocal reads KxR, or K for the default number of rails.
func parseLocal(s string) (size localSize, err error) {
	size.rails = defaultRails
	processes, rails, hasRails := strings.Cut(s, "x")
	if size.processes, err = strconv.Atoi(processes); err == nil && hasRails {
		size.rails, err = strconv.Atoi(rails)
	}
	if err != nil {
		return localSize{}, fmt.Errorf("%q is not K or KxR, like 4 or 4x3", s)
	}
	return size, nil
}

func (s localSize) String() string {
	if s.rails == defaultRails || s.processes == 0 {
		return strconv.Itoa(s.processes)
	}
	return fmt.Sprintf("%dx%d", s.processes, s.rails)
}

func (f *localFlags) register(fs *pflag.FlagSet, doing string) {
	f.size.rails = defaultRails
	settings.Var(fs, &f.size, "local", "K[xR]", parseLocal, localSize.String,
		fmt.Sprintf("start K processes on loopback with R rails each (%d), on 127.0.0.1, 127.0.0.2 …, and %s", defaultRails, doing))
	fs.IntVar(&f.hosts, "hosts", 0, "divide the processes of --local over so many `HOSTS`, which share nothing but the rails (0: they share this one)")
	fs.BoolVar(&f.sealed, "sealed", false, "make keys for the processes of --local: rails and gossip are sealed")
}

// faults are those of the flags together.
func (f *localFlags) faults(fs *pflag.FlagSet, ranks int) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	k, r := f.size.processes, f.size.rails
	if k == 0 && ranks < 1 {
		fault("--ranks must say how many processes take part (or --local K starts them)")
	}
	if k < 0 || k > maxLocal {
		fault("--local %v: %d processes are outside 1…%d", f.size, k, maxLocal)
	}
	switch {
	case k == 0 && f.hosts != 0:
		fault("--hosts %d divides the processes of --local, and there are none", f.hosts)
	case f.hosts < 0 || k > 0 && f.hosts > k:
		fault("--hosts %d: %d processes (--local) can be on 1…%[2]d hosts", f.hosts, k)
	}
	if f.sealed && k == 0 {
		fault("--sealed makes keys for the processes of --local; others get theirs by --tls-cert and the like")
	}
	if k == 0 {
		return faults
	}
	for _, name := range []string{"name", "tls-cert", "tls-key", "tls-ca", "gossip-key", "bind", "advertise", "join", "rendezvous", "ranks"} {
		if fs.Changed(name) {
			fault("--%s does not go with --local, which chooses it", name)
		}
	}
	if r < 1 || r > maxLocalRails {
		fault("--local %v: %d rails are outside 1…%d", f.size, r, maxLocalRails)
	}
	if r != defaultRails && fs.Changed("rail") {
		fault("--local %v: its rails are not those of --rail: choose one, --local %d or no --rail", f.size, k)
	}
	return faults
}

// Flags that the parent of --local decides for its children, and those that are the first one's.
var (
	localOnly = []string{"local", "hosts", "sealed", "ranks", "name", "bind", "advertise", "join", "rendezvous", settings.ConfigFlag}
	localHTTP = []string{"http", "http-tls"} // an address is one process's
)

// localToken is the first one's too.
const localToken = "http-token"

// localBind is where a process gossips.
const localBind = "127.0.0.1:0"

func localName(i int) string { return fmt.Sprintf("local-%d", i) }

// check validates what the processes are configured as: a fault is told once, before they start.
func (f *localFlags) check(cmd *cobra.Command, cfg polyrail.Config) error {
	cfg.Name, cfg.Bind = localName(0), localBind
	for _, text := range f.defaultRails(cmd) {
		r, err := polyrail.ParseRail(text)
		if err != nil {
			return err
		}
		cfg.Rails = append(cfg.Rails, r)
	}
	if f.withoutMemory(cmd) {
		cfg.SharedMemory = false
	}
	if f.sealed { // they are made later
		cfg.TLS, cfg.GossipKeys = polyrail.TLS{Cert: "made", Key: "made", CA: "made"}, "made"
	}
	return cfg.Validate()
}

// defaultRails are those of --local, as --rail has them, where no rails are named.
func (f *localFlags) defaultRails(cmd *cobra.Command) (rails []string) {
	if cmd.Flags().Changed("rail") {
		return nil
	}
	for k := range f.size.rails {
		rails = append(rails, fmt.Sprintf("%s=tcp:%s", testbed.RailName(k), testbed.Address(k)))
	}
	return rails
}

// withoutMemory: other flags are about rails, and nothing is said of memory.
func (f *localFlags) withoutMemory(cmd *cobra.Command) bool {
	return f.rails && !cmd.Flags().Changed("shm") && f.hosts == 0
}

// run starts the processes of this command and waits for them. They meet in a directory. What rank
// 0 prints, whichever process that is, goes to standard output.
func (f *localFlags) run(cmd *cobra.Command, cfg polyrail.Config) (err error) {
	if err := f.check(cmd, cfg); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--local: %w", err)
	}
	dir, err := os.MkdirTemp("", "polyrail-")
	if err != nil {
		return fmt.Errorf("--local: where the processes meet: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shared := append(f.sharedArgs(cmd), "--bind="+localBind, "--rendezvous="+polyrail.Rendezvous{Directory: dir}.URL())
	env := settings.WithoutTwins(os.Environ())
	authority := keys.Authority{Dir: filepath.Join(dir, "keys")}
	if f.sealed {
		if err := authority.Init(cmd.Flags().Lookup("cluster").Value.String()); err != nil {
			return err
		}
	}
	var group []children.Child
	for i := range f.size.processes {
		name := localName(i)
		args, own := append(slices.Clone(shared), "--name="+name), slices.Clone(env)
		if i == 0 {
			httpArgs, httpEnv := ofFirst(cmd)
			args, own = append(args, httpArgs...), append(own, httpEnv...)
		}
		if f.hosts > 0 {
			args = append(args, fmt.Sprintf("--host=local-host-%d", i*f.hosts/f.size.processes))
		}
		if f.sealed {
			if err := authority.Node(name); err != nil {
				return err
			}
			files := authority.Files(name)
			args = append(args, "--tls-cert="+files.Cert, "--tls-key="+files.Key, "--tls-ca="+files.CA,
				"--gossip-key="+authority.GossipFile())
		}
		group = append(group, children.Child{Name: name, Args: args, Env: own})
	}
	return children.Run(cmd.Context(), program, group, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// sharedArgs is the part of the children's command line that they have in common: what
// was set here, by whatever means.
func (f *localFlags) sharedArgs(cmd *cobra.Command) []string {
	args := []string{cmd.Name(), fmt.Sprintf("--ranks=%d", f.size.processes)}
	args = append(args, setArgs(cmd, func(name string) bool {
		return !slices.Contains(localOnly, name) && !slices.Contains(localHTTP, name) && name != localToken
	})...)
	if f.withoutMemory(cmd) {
		args = append(args, "--shm=off")
	}
	for _, rail := range f.defaultRails(cmd) {
		args = append(args, "--rail="+rail)
	}
	return args
}

// ofFirst is what the first process alone is told. The token goes by its environment: other users
// of the host see command lines.
func ofFirst(cmd *cobra.Command) (args, env []string) {
	args = setArgs(cmd, func(name string) bool { return slices.Contains(localHTTP, name) })
	if token := cmd.Flags().Lookup(localToken); token.Changed {
		env = append(env, settings.EnvName(localToken)+"="+token.Value.String())
	}
	return args, env
}

// setArgs are the flags that were set, of those that are wanted.
func setArgs(cmd *cobra.Command, wanted func(name string) bool) (args []string) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if wanted(flag.Name) {
			args = append(args, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
		}
	})
	return args
}
