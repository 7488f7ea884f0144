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

// localOnly are the flags that the parent of --local decides for its children, or that are not theirs.
var localOnly = []string{"local", "rails", "ranks", "name", "bind", "advertise", "join", "cpuprofile", settings.ConfigFlag}

// runLocal starts --local processes of this program on loopback and waits for them.
// What rank 0 prints, whichever process that is, goes to standard output.
func (f *benchFlags) runLocal(cmd *cobra.Command) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--local: %w", err)
	}
	seed, err := freeAddress()
	if err != nil {
		return fmt.Errorf("--local: a port for gossip: %w", err)
	}
	shared := f.sharedArgs(cmd.Flags())
	env := settings.WithoutTwins(os.Environ())
	var group []children.Child
	for i := range f.local {
		name := fmt.Sprintf("local-%d", i)
		args := append(slices.Clone(shared), "--name="+name)
		if i == 0 {
			args = append(args, "--bind="+seed)
			if f.cpuProfile != "" {
				args = append(args, "--cpuprofile="+f.cpuProfile)
			}
		} else {
			args = append(args, "--bind=127.0.0.1:0", "--join="+seed)
		}
		group = append(group, children.Child{Name: name, Args: args, Env: env})
	}
	return children.Run(cmd.Context(), program, group, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// sharedArgs is the part of the children's command line that they have in common: what
// was set here, by whatever means.
func (f *benchFlags) sharedArgs(fs *pflag.FlagSet) []string {
	args := []string{"bench", fmt.Sprintf("--ranks=%d", f.local)}
	fs.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(localOnly, flag.Name) {
			args = append(args, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
		}
	})
	if !fs.Changed("rail") {
		for k := range f.localRails {
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
