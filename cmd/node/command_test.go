package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyrail/polyrail/cmd/internal/settings"
	"github.com/polyrail/polyrail/test/testbed"
)

// node runs the command line in this process.
func node(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// visitFlags calls f for every flag of every command, but for --help.
func visitFlags(f func(cmd *cobra.Command, flag *pflag.Flag)) {
	for _, cmd := range commands(newRoot()) {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { f(cmd, flag) })
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"bench", "--help"}, {"demo", "--help"},
		{"chaos", "--help"}, {"chart", "--help"}, {"tune", "--help"}, {"sharp", "--help"}, {"simulate", "--help"}, {"sharp", "quota", "--help"},
		{"keys", "--help"}, {"keys", "init", "--help"}, {"help", "bench"}, {"help"}, {"version", "--help"}, {"keys", "node", "--help"}, {"keys", "rotate", "--help"}, {}} {
		code, out, errs := node(t, args...)
		if code != exitOK || errs != "" {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs)
		}
		if !strings.Contains(out, "Examples:\n  ") {
			t.Errorf("%v shows no examples:\n%s", args, out)
		}
		for line := range strings.Lines(out) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpColumns {
				t.Errorf("%v: a line of %d columns: %s", args, n, line)
			}
		}
	}
	if _, out, _ := node(t, "bench", "--help"); !strings.Contains(strings.Join(strings.Fields(out), " "), "131072 operations are enough") {
		t.Errorf("it isn't said where --min-time ends:\n%s", out)
	}
	visitFlags(func(cmd *cobra.Command, flag *pflag.Flag) {
		if flag.Usage == "" {
			t.Errorf("node %s --%s is not explained", cmd.Name(), flag.Name)
		}
	})
}

func TestExamplesInTheHelpParse(t *testing.T) {
	for _, cmd := range append(newRoot().Commands(), newRoot()) {
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "node" {
				continue
			}
			found, args, err := newRoot().Find(words[1:])
			if err == nil {
				err = found.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
		}
	}
}

// A communicator needs rails of the same names on all its nodes.
func TestNodesThatJoinEachOtherInAnExampleHaveTheSameRails(t *testing.T) {
	for _, cmd := range append(newRoot().Commands(), newRoot()) {
		rails := make(map[string][]string) // by address of gossip
		for line := range strings.Lines(cmd.Example) {
			var bind, join string
			var mine []string
			words := strings.Fields(line)
			for i := 1; i < len(words); i++ {
				switch words[i-1] {
				case "--bind":
					bind = words[i]
				case "--join":
					join = words[i]
				case "--rail":
					name, _, _ := strings.Cut(words[i], "=")
					mine = append(mine, name)
				}
			}
			if seed, ok := rails[join]; ok && join != "" && !slices.Equal(seed, mine) {
				t.Errorf("the node it joins has rails %v: %s", seed, strings.TrimSpace(line))
			}
			rails[bind] = mine
		}
	}
}

func TestWrongUseExitsWith2AndOneLineThatNamesTheCulprit(t *testing.T) {
	dir := t.TempDir()
	yaml := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(yaml, []byte("rnaks: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"bnech"}, []string{`"bnech"`}},
		{[]string{"run", "extra"}, []string{`"extra"`}},
		{[]string{"run", "--nmae", "x"}, []string{"--nmae"}},
		{[]string{"run", "--rank-timeout", "soon"}, []string{"--rank-timeout", "soon"}},
		{[]string{"run", "--rail", "eth0"}, []string{"--rail", "eth0"}},
		{[]string{"run", "--join", "host"}, []string{"--join", `"host"`}},
		{[]string{"run", "--rendezvous", "list:10.0.0.1:7946"}, []string{"--rendezvous", "--join"}},
		{[]string{"run", "--rendezvous", "dir://relative"}, []string{"--rendezvous", "three slashes"}},
		{[]string{"bench", "--local", "2", "--rendezvous", "dir:///tmp"}, []string{"--rendezvous", "--local"}},
		{[]string{"run", "--log-level", "loud"}, []string{"--log-level", "loud"}},
		{[]string{"run", "--algorithm", "64KiB=rign"}, []string{"--algorithm", "rign"}},
		{[]string{"run", "--algorithm", "0=ring"}, []string{"--algorithm", "0=ring"}},
		{[]string{"run", "--algorithm", "rest=ring"}, []string{"--algorithm", "rest=ring"}},
		{[]string{"run", "--config", yaml}, []string{"bad.yaml", "rnaks"}},
		{[]string{"run", "--rail", "a=tcp:127.0.0.1", "--bind", ":99999", "--join", ":7946", "--name", "a b", "--advertise", "here:1"},
			[]string{`":99999"`, `":7946"`, `"a b"`, `"here:1"`}},
		{[]string{"bench"}, []string{"--ranks"}},
		{[]string{"bench", "--ranks", "2", "--sizes", "10,1KiB"}, []string{"--sizes", "10 bytes", "float32"}},
		{[]string{"bench", "--local", "2", "--sizes", "8,99999999G"}, []string{"--sizes 99999999GiB", "memory"}},
		{[]string{"tune", "--tuning", "f", "--local", "2", "--sizes", "99999999G"}, []string{"--sizes 99999999GiB", "memory"}},
		{[]string{"bench", "--ranks", "2", "--sizes", "1MB"}, []string{"--sizes", "1MB"}},
		{[]string{"bench", "--ranks", "2", "--dtype", "float31"}, []string{"--dtype", "float31"}},
		{[]string{"bench", "--ranks", "2", "--reduce", "bitand"}, []string{"--reduce", "bitand", "float32"}},
		{[]string{"bench", "--ranks", "2", "--op", "gossip"}, []string{"--op", "gossip", "allgatherv"}},
		{[]string{"bench", "--ranks", "2", "--op", "broadcast", "--algorithm", "ring"}, []string{"--algorithm ring", "broadcast", "tree, chain"}},
		{[]string{"bench", "--ranks", "2", "--op", "barrier", "--algorithm", "tree"}, []string{"--algorithm tree", "barrier"}},
		{[]string{"bench", "--ranks", "2", "--op", "all", "--algorithm", "ring"}, []string{"--algorithm ring", "reduce"}},
		{[]string{"bench", "--ranks", "2", "--op", "scan", "--reduce", "avg"}, []string{"--reduce avg", "scan"}},
		{[]string{"bench", "--ranks", "2", "--op", "gather", "--root", "2"}, []string{"--root 2", "2 ranks"}},
		{[]string{"bench", "--ranks", "2", "--warmup", "-2"}, []string{"--warmup -2", "-1: by size"}},
		{[]string{"bench", "--ranks", "2", "--hosts", "2"}, []string{"--hosts 2 divides the processes of --local"}},
		{[]string{"chaos", "--scenario", "x", "--seed", "3"}, []string{"--seed", "--scenario"}},
		{[]string{"help", "nope"}, []string{`unknown command "nope"`}},
		{[]string{"help", "sharp", "nope"}, []string{`unknown command "sharp nope"`}},
		{[]string{"status", "--http", "127.0.0.1:1", "--timeout", "-1s"}, []string{"--timeout -1s"}},
		{[]string{"status", "--http", "127.0.0.1:1", "--http-tls", "on"}, []string{"--http-tls", "--tls-ca"}},
		{[]string{"status", "--http", "127.0.0.1:1", "--http-tls", "on", "--tls-ca", "x", "--tls-key", "y"}, []string{"--tls-cert"}},
		{[]string{"top", "--http", "127.0.0.1:1", "--timeout", "0s"}, []string{"--timeout 0s"}},
		{[]string{"sharp", "trees", "--join", "127.0.0.1:1", "--timeout", "-1s"}, []string{"--timeout -1s"}},
		{[]string{"bench", "--ranks", "2", "--op", "all", "--plot", "x"}, []string{"--plot", "--op all"}},
		{[]string{"bench", "--ranks", "2", "--algorithm", "star"}, []string{"--algorithm", "star"}},
		{[]string{"bench", "--local", "2x0", "--name", "a"}, []string{"--name", "--local 2x0"}},
		{[]string{"bench", "--ranks", "2", "--rail", "a=tcp:127.0.0.1,cpus=1-0"}, []string{"--rail", `"1-0"`}},
		{[]string{"bench", "--local", "2x"}, []string{"--local", `"2x"`}},
		{[]string{"bench", "--ranks", "2"}, []string{"--rail must name", "auto"}},
		{[]string{"bench", "--ranks", "2", "--json", "--csv"}, []string{"--json and --csv"}},
		{[]string{"bench", "--ranks", "2", "--profile", "--csv"}, []string{"--csv", "--profile=FILE"}},
		{[]string{"bench", "--local", "2x3", "--rail", "a=tcp:127.0.0.1"}, []string{"--local 2x3", "--rail", "--local 2 or"}},
		{[]string{"bench", "--ranks", "2", "--profile=/no/such/x"}, []string{"--profile=/no/such/x"}},
		{[]string{"bench", "--ranks", "2", "--profile=/dev", "--timeline=/dev"}, []string{"--profile=/dev: is a dir", "--timeline=/dev: is a dir"}},
		{[]string{"chaos", "--scenario", "/no/such"}, []string{"--scenario", "/no/such"}},
		{[]string{"bench", "--local", "1000"}, []string{"--local 1000"}},
		{[]string{"bench", "--local", "2", "--nodes", "-1"}, []string{"-1 nodes expected"}},
		{[]string{"bench", "--local", "2", "--sealed", "--max-in-flight", "0", "--bcube-base", "1"}, []string{"max in flight 0", "bcube base 1"}},
		{[]string{"bench", "--local", "2", "--http", "nowhere"}, []string{`http address "nowhere"`}},
		{[]string{"bench", "--local", "2", "--plot", "/dev/null/plots"}, []string{"--plot /dev/null/plots"}},
		{[]string{"bench", "--ranks", "2", "--nodes", "-1", "--rail", "a=tcp:127.0.0.1"}, []string{"-1 nodes expected"}},
		{[]string{"tune", "--tuning", "f", "--local", "2", "--rank-timeout", "1ms"}, []string{"rank timeout 1ms"}},
		{[]string{"tune", "--ranks", "2"}, []string{"--tuning"}},
		{[]string{"tune", "--tuning", "f", "--ranks", "1"}, []string{"--ranks 1"}},
		{[]string{"tune", "--tuning", "f", "--local", "2x1"}, []string{"--local 2x1"}},
		{[]string{"tune", "--tuning", "f", "--local", "2", "--rail", "a=tcp:127.0.0.1,weight=2", "--rail", "b=tcp:127.0.0.2"}, []string{`"a"`, "weight"}},
		{[]string{"tune", "--tuning", "f", "--local", "2", "--balance", "static"}, []string{"--balance"}},
		{[]string{"tune", "--tuning", "f", "--local", "2", "--sizes", "10"}, []string{"--sizes", "10 bytes"}},
		{[]string{"demo", "--local", "1"}, []string{"--local 1"}},
		{[]string{"demo", "--local", "2x5"}, []string{"--local 2x5"}},
	} {
		code, out, errs := node(t, c.args...)
		if code != exitUsage || out != "" {
			t.Errorf("%v: exit code %d, stdout %q", c.args, code, out)
		}
		if strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: not one line: %q", c.args, errs)
		}
		for _, w := range c.want {
			if !strings.Contains(errs, w) {
				t.Errorf("%v: %q does not name %q", c.args, errs, w)
			}
		}
	}
}

func TestAWrongNumberOfProcessesIsOneFault(t *testing.T) {
	code, _, errs := node(t, "bench", "--local", "-1")
	if code != exitUsage || !strings.Contains(errs, "--local -1") || strings.Contains(errs, "--hosts") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

// sample is a value that differs from each flag's default.
func sample(flag *pflag.Flag) string {
	switch flag.Name {
	case "rail":
		return "a=tcp:127.0.0.1,weight=3,cpus=0-3+8 b=tcp:127.0.0.2"
	case "join":
		return "127.0.0.1:1,127.0.0.1:2"
	case "rendezvous":
		return "redis://me:secret@127.0.0.1:1/7"
	case "algorithm":
		return "64KiB=recursive-doubling,ring"
	case "local":
		return "7x3"
	case "balance":
		return "static"
	case "tree-results":
		return "both"
	case "trees":
		return "never"
	case "order":
		return "free"
	case "probe", "shm":
		return "off"
	case "pin-frames", "http-tls", "integrity":
		return "on"
	case "log-level":
		return "error"
	case "op":
		return "alltoall"
	case "dtype":
		return "int64"
	case "reduce":
		return "max"
	case "shm-ring":
		return "64KiB"
	case "shm-limit":
		return "7MiB"
	case "sizes":
		return "16,3KiB"
	case "rails":
		return "7us:2Gbit,3us:1Gbit"
	case "local-link":
		return "7us:2Gbit"
	case "copy", "fold":
		return "7Gbit"
	case "tree":
		return "host"
	case "kill":
		return "1@7s"
	case "algorithms":
		return "tree,ring"
	}
	switch flag.Value.Type() {
	case "bool":
		return "true"
	case "duration":
		return "7s"
	case "string":
		return "text:1"
	}
	return "7"
}

// quoted is s as a YAML string.
func quoted(s string) string { return `"` + s + `"` }

func TestEveryFlagHasATwinInTheEnvironmentAndInTheFile(t *testing.T) {
	visitFlags(func(cmd *cobra.Command, flag *pflag.Flag) {
		if flag.Name == settings.ConfigFlag {
			return
		}
		t.Run(cmd.CommandPath()+" --"+flag.Name, func(t *testing.T) {
			want := setBy(t, cmd.CommandPath(), flag.Name, "--"+flag.Name+"="+sample(flag))
			t.Run("file", func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "node.yaml")
				if err := os.WriteFile(file, []byte(flag.Name+": "+quoted(sample(flag))+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if got := setBy(t, cmd.CommandPath(), flag.Name, "--config="+file); got != want {
					t.Errorf("the file sets %q, the flag %q", got, want)
				}
			})
			t.Run("environment", func(t *testing.T) {
				t.Setenv(settings.EnvName(flag.Name), sample(flag))
				if got := setBy(t, cmd.CommandPath(), flag.Name); got != want {
					t.Errorf("the environment sets %q, the flag %q", got, want)
				}
			})
		})
	})
}

// setBy is the flag's value under the command line, without running the command.
func setBy(t *testing.T, command, flag string, args ...string) string {
	t.Helper()
	root := newRoot()
	cmd, _, err := root.Find(strings.Fields(command)[1:])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	if err := root.PersistentPreRunE(cmd, nil); err != nil {
		t.Fatal(err)
	}
	if !cmd.Flags().Changed(flag) {
		t.Fatalf("--%s was not set", flag)
	}
	return cmd.Flags().Lookup(flag).Value.String()
}

func TestValuesPrintAsTheyAreRead(t *testing.T) {
	visitFlags(func(cmd *cobra.Command, flag *pflag.Flag) {
		want := setBy(t, cmd.CommandPath(), flag.Name, "--"+flag.Name+"="+sampleOrFile(t, flag))
		if got := setBy(t, cmd.CommandPath(), flag.Name, "--"+flag.Name+"="+want); got != want {
			t.Errorf("node %s --%s=%s reads back as %s", cmd.Name(), flag.Name, want, got)
		}
	})
}

// sampleOrFile is sample, but for --config, which must name a file that exists.
func sampleOrFile(t *testing.T, flag *pflag.Flag) string {
	t.Helper()
	if flag.Name != settings.ConfigFlag {
		return sample(flag)
	}
	file := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLocalProcessesGetEverythingOnTheirCommandLine(t *testing.T) {
	root := newRoot()
	cmd, _, _ := root.Find([]string{"bench"})
	f := localFlags{size: localSize{processes: 3, rails: 2}}
	t.Setenv("POLYRAIL_CHECK", "true")
	if err := cmd.ParseFlags([]string{"--local=3", "--sizes=8,1M", "--eager-bytes=1k"}); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	if err := root.PersistentPreRunE(cmd, nil); err != nil {
		t.Fatal(err)
	}
	got := f.sharedArgs(cmd)
	want := []string{"bench", "--ranks=3", "--check=true", "--eager-bytes=1KiB", "--rail=rail0=tcp:" + testbed.Address(0), "--rail=rail1=tcp:" + testbed.Address(1), "--sizes=8,1MiB"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("arguments %q\nwant      %q", got, want)
	}
}

func TestATokenOfTheEnvironmentIsOnNoCommandLine(t *testing.T) {
	const token = "a token of a test"
	root := newRoot()
	cmd, _, _ := root.Find([]string{"bench"})
	f := localFlags{size: localSize{processes: 2, rails: 2}}
	t.Setenv("POLYRAIL_HTTP_TOKEN", token)
	if err := cmd.ParseFlags([]string{"--local=2", "--http=127.0.0.1:9321"}); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	if err := root.PersistentPreRunE(cmd, nil); err != nil {
		t.Fatal(err)
	}
	args, env := ofFirst(cmd)
	if !slices.Equal(args, []string{"--http=127.0.0.1:9321"}) || !slices.Equal(env, []string{"POLYRAIL_HTTP_TOKEN=" + token}) {
		t.Errorf("the first process gets %q, and the environment %q", args, env)
	}
	if shared := f.sharedArgs(cmd); strings.Contains(strings.Join(shared, " "), token) {
		t.Errorf("all processes get %q", shared)
	}
}

func TestAFaultOfTheEnvironmentDoesNotRepeatAPassword(t *testing.T) {
	t.Setenv("POLYRAIL_RENDEZVOUS", "redis://:secret@store:port")
	var errs strings.Builder
	code := execute(t.Context(), []string{"run"}, io.Discard, &errs)
	if got := errs.String(); code != exitUsage || !strings.Contains(got, "POLYRAIL_RENDEZVOUS") || strings.Contains(got, "secret") {
		t.Errorf("exit code %d, %s", code, got)
	}
}
