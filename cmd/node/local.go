package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail/cmd/node/internal/children"
	"github.com/polyrail/polyrail/cmd/node/internal/settings"
)

// Limits of what one host is asked to do.
const (
	maxLocal      = 64
	maxLocalRails = 16
)

// localFlags start a group of processes on this host in place of one that joins others.
type localFlags struct {
	processes int
	rails     int
}

func (f *localFlags) register(fs *pflag.FlagSet, doing string) {
	fs.IntVar(&f.processes, "local", 0, "start `K` processes on loopback and "+doing)
	fs.IntVar(&f.rails, "rails", 2, "with --local: `R` rails, on 127.0.0.1, 127.0.0.2 …")
}

// faults are those of the flags together.
func (f *localFlags) faults(fs *pflag.FlagSet, ranks int) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if f.processes == 0 && ranks < 1 {
		fault("--ranks must say how many processes take part (or --local K starts them)")
	}
	if f.processes < 0 || f.processes > maxLocal {
		fault("--local %d is outside 1…%d", f.processes, maxLocal)
	}
	if f.processes == 0 {
		return faults
	}
	for _, name := range []string{"name", "bind", "advertise", "join", "rendezvous", "ranks"} {
		if fs.Changed(name) {
			fault("--%s does not go with --local, which chooses it", name)
		}
	}
	if f.rails < 1 || f.rails > maxLocalRails {
		fault("--rails %d is outside 1…%d", f.rails, maxLocalRails)
	}
	return faults
}

// localOnly are the flags that the parent of --local decides for its children, or that are not theirs.
var localOnly = []string{"local", "rails", "ranks", "name", "bind", "advertise", "join", "rendezvous", "cpuprofile", settings.ConfigFlag}

// run starts the processes of this command, the first of them with further arguments, and waits for them.
// What rank 0 prints, whichever process that is, goes to standard output.
func (f *localFlags) run(cmd *cobra.Command, first ...string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--local: %w", err)
	}
	seed, err := freeAddress()
	if err != nil {
		return fmt.Errorf("--local: a port for gossip: %w", err)
	}
	shared := f.sharedArgs(cmd)
	env := settings.WithoutTwins(os.Environ())
	var group []children.Child
	for i := range f.processes {
		name := fmt.Sprintf("local-%d", i)
		args := append(slices.Clone(shared), "--name="+name)
		if i == 0 {
			args = append(append(args, "--bind="+seed), first...)
		} else {
			args = append(args, "--bind=127.0.0.1:0", "--join="+seed)
		}
		group = append(group, children.Child{Name: name, Args: args, Env: env})
	}
	return children.Run(cmd.Context(), program, group, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// sharedArgs is the part of the children's command line that they have in common: what
// was set here, by whatever means.
func (f *localFlags) sharedArgs(cmd *cobra.Command) []string {
	args := []string{cmd.Name(), fmt.Sprintf("--ranks=%d", f.processes)}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(localOnly, flag.Name) {
			args = append(args, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
		}
	})
	if !cmd.Flags().Changed("rail") {
		for k := range f.rails {
			args = append(args, fmt.Sprintf("--rail=%s=tcp:%s", railName(k), loopback(k)))
		}
	}
	return args
}

// railName names the k-th rail of a local cluster.
func railName(k int) string { return fmt.Sprintf("rail%d", k) }

// loopback is the k-th rail's address: Linux answers on all of 127/8, others on one address only.
func loopback(k int) string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.0.0.%d", k+1)
}

// freeAddress is an address on loopback whose port is free for TCP and UDP, as gossip needs it.
func freeAddress() (string, error) {
	const tries = 16
	var err error
	for range tries {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		addr := l.Addr().String()
		var p net.PacketConn
		p, err = net.ListenPacket("udp", addr)
		_ = l.Close()
		if err == nil {
			_ = p.Close()
			return addr, nil
		}
	}
	return "", err
}
