package main

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

const keysLong = `keys makes the keys of a cluster for those who have no authority of their own. They live in
one directory, best on a machine that is no node of the cluster:

  ca.pem                   authorities that nodes believe      to all hosts
  gossip.key               keys of gossip                      to all hosts
  NODE.pem, NODE-key.pem   a node's certificate and its key    to that node's host alone
  ca-key.pem               the authority's own key             to nobody

Whoever has ca-key.pem can be any node. Certificates are valid for a year: node keys node NAME makes
a new one. Files are replaced as a whole, and running nodes read them again: nothing is restarted.

Certificates of your own authority do as well: the one URI name polyrail://CLUSTER/NODE says which
node it is. See docs/security.md.`

const keysExample = `  # Once, for a cluster named prod with nodes a and b:
  node keys init --dir keys --cluster prod
  node keys node --dir keys a b

  # On host a, which has the files of a, ca.pem and gossip.key in /etc/polyrail:
  node run --cluster prod --name a --tls-cert /etc/polyrail/a.pem \
    --tls-key /etc/polyrail/a-key.pem --tls-ca /etc/polyrail/ca.pem \
    --gossip-key /etc/polyrail/gossip.key --bind 10.0.0.1:7946 --rail r0=tcp:eth1`

// keysFlags are where the keys are.
type keysFlags struct {
	common
	dir string
}

func (f *keysFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.dir, "dir", "", "`DIRECTORY` of the keys")
	f.common.register(fs, slog.LevelWarn)
	fs.SortFlags = false
}

// authority is the one in the directory.
func (f *keysFlags) authority() (keys.Authority, error) {
	if f.dir == "" {
		return keys.Authority{}, usagef("--dir must name the directory of the keys")
	}
	return keys.Authority{Dir: f.dir}, nil
}

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		Short:   "Make the keys of a cluster, and rotate them",
		Long:    keysLong,
		Example: keysExample,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysInit(), newKeysNode(), newKeysRotate())
	return cmd
}

func newKeysInit() *cobra.Command {
	var f keysFlags
	cluster := ""
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Make an authority, and a key of gossip",
		Long:    "init makes ca.pem, ca-key.pem and gossip.key in a directory that has none of them.",
		Example: "  node keys init --dir keys --cluster prod",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := f.authority()
			if err != nil {
				return err
			}
			if cluster == "" {
				return usagef("--cluster must name the cluster: a certificate says of which one a node is")
			}
			if err := a.Init(cluster); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has the authority of cluster %s. Next, for each node:\n"+
				"  node keys node --dir %[1]s NAME\n", f.dir, cluster)
			return err
		},
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "`NAME` of the cluster: letters, digits, '.', '-' and '_'")
	f.register(cmd.Flags())
	return cmd
}

func newKeysNode() *cobra.Command {
	var f keysFlags
	var hosts []string
	cmd := &cobra.Command{
		Use:   "node NAME...",
		Short: "Make the certificate of a node, or a new one",
		Long: `node makes the certificates of nodes, and says what is to go to their hosts. It is also how a
certificate is renewed, and how one is replaced whose key got lost.

Nodes need no names of hosts to find each other. Browsers and Prometheus do, to look at a node with
--http-tls on: --host-name adds them to the certificate of one node. They stay when it is renewed.`,
		Example: "  node keys node --dir keys a b c\n  node keys node --dir keys --host-name a.example.org,10.0.0.1 a",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			a, err := f.authority()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return usagef("name the nodes, as in: %s --dir %s a b", cmd.CommandPath(), f.dir)
			}
			if len(hosts) > 0 && len(names) > 1 {
				return usagef("--host-name is of one node, and there are %d", len(names))
			}
			for _, name := range names {
				if err := keys.CheckNode(name); err != nil {
					return &usageError{err}
				}
			}
			for _, name := range names {
				if err := a.Node(name, hosts...); err != nil {
					return err
				}
				if err := describeKeys(cmd.OutOrStdout(), a, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	settings.List(cmd.Flags(), &hosts, "host-name", "NAME,...", ",", settings.ParseAsIs, settings.AsIs,
		"names or addresses of the node's host, for who looks at it with --http-tls on")
	f.register(cmd.Flags())
	return cmd
}

// describeKeys says which files a node needs, and how it is told of them.
func describeKeys(w io.Writer, a keys.Authority, name string) error {
	n := a.Files(name)
	c, err := n.Load()
	if err != nil {
		return err
	}
	base := filepath.Base
	_, err = fmt.Fprintf(w, "%s: copy %s, %s, %s and %s to its host. Its flags there:\n"+
		"  --cluster %s --name %s --tls-cert %[2]s --tls-key %[3]s \\\n    --tls-ca %[4]s --gossip-key %[5]s\n",
		c, base(n.Cert), base(n.Key), base(n.CA), base(a.GossipFile()), c.Cluster, name)
	return err
}

const rotateLong = `rotate replaces all keys of a running cluster, in three steps. After each of them copy the files
to all hosts (ca.pem, gossip.key and each node's own two), and wait some seconds, before the next
step follows. So each node believes at all times what any other one shows, and no operation fails.

  add    a second authority, and a second key of gossip: nodes believe both
  use    all certificates are made anew by the second one, gossip seals with the second key
  drop   nodes believe the former ones no more

A connection keeps the keys with which it was made: a node whose keys are believed no more is out
when it connects the next time, and out of gossip at once.`

// rotated is what follows each step.
var rotated = map[keys.Step]string{
	keys.RotateAdd:  "ca.pem and gossip.key are new. Copy them to all hosts; then: node keys rotate --dir %s use\n",
	keys.RotateUse:  "All certificates and gossip.key are new. Copy each to its host; then: node keys rotate --dir %s drop\n",
	keys.RotateDrop: "ca.pem and gossip.key are new, without the former keys. Copy them to all hosts; %s is rotated.\n",
}

func newKeysRotate() *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{
		Use:     "rotate add|use|drop",
		Short:   "Replace all keys of a running cluster, in three steps",
		Long:    rotateLong,
		Example: "  node keys rotate --dir keys add\n  node keys rotate --dir keys use\n  node keys rotate --dir keys drop",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := f.authority()
			if err != nil {
				return err
			}
			step := keys.Step("")
			if len(args) == 1 {
				step = keys.Step(args[0])
			}
			next, ok := rotated[step]
			if !ok {
				return usagef("say which step: %s --dir %s add, use or drop", cmd.CommandPath(), f.dir)
			}
			if err := a.Rotate(step); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), next, f.dir)
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}
