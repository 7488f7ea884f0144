package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/nodeflags"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// TestAConfigFileIsReadAlikeByAllCommands: the one in run's help, and what it does to others.
func TestAConfigFileIsReadAlikeByAllCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	_, sample, _ := strings.Cut(newRun().Long, "two NICs:\n")
	root := newRoot()
	for _, cmd := range commands(root) {
		if _, err := configured(t, file, sample, cmd, knownKey(root)); err != nil {
			t.Errorf("%s: %v", cmd.Name(), err)
		}
	}
}

// write makes the file anew: some file systems write one that is truncated to the disk at once.
func write(t *testing.T, file, text string) {
	t.Helper()
	_ = os.Remove(file) // it may not be there yet
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// configured is what the flags of a fresh command are after a file with this text was applied, by name.
func configured(t *testing.T, file, text string, cmd *cobra.Command, known func(string) bool) (map[string]string, error) {
	t.Helper()
	write(t, file, text)
	if err := cmd.Flags().Set(settings.ConfigFlag, file); err != nil {
		t.Fatal(err)
	}
	if err := settings.Apply(t.Context(), cmd.Flags(), known); err != nil {
		if !strings.Contains(err.Error(), file) {
			t.Fatalf("%q: error %q doesn't name the file", text, err)
		}
		return nil, err
	}
	values := make(map[string]string)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != settings.ConfigFlag {
			values[f.Name] = f.Value.String()
		}
	})
	return values, nil
}

// FuzzConfigFile: whatever the file says is refused with its name, or taken; what was taken means
// the same when it is written down, and is then a configuration, or an error of Validate.
func FuzzConfigFile(f *testing.F) {
	dir := f.TempDir()
	_, sample, _ := strings.Cut(newRun().Long, "two NICs:\n")
	for _, text := range []string{sample, "", "rank-timeout: 1s\nranks: 4\nsizes: [8, 1KiB]\ncheck: true\n", "join: &a [a:1]\nrail: *a\n", "? [a]\n: b\n", "a: b\n---\nc: d",
		"algorithm: [4KiB=recursive-doubling, ring]\nbalance: static\nprobe: off\nmemory-limit: 1GiB\nlog-level: debug\n", "rail: \"a=tcp:auto,weight=2,cpus=0-3+8\"",
		"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n", "<<: {name: a}\n", "name: !!binary aGVsbG8=\nbind: ~\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "node.yaml")
		known := func(string) bool { return true } // one file serves all commands
		for _, command := range []func() *cobra.Command{newRun, newBench} {
			values, err := configured(t, file, text, command(), known)
			if err != nil {
				continue
			}
			written, err := yaml.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			again, err := configured(t, file, string(written), command(), known)
			if err != nil {
				t.Fatalf("%q became %q: %v", text, written, err)
			}
			for key, value := range values {
				if again[key] != value {
					t.Fatalf("%s of %q became %q, and then %q", key, text, value, again[key])
				}
			}
		}
		cfg := polyrail.DefaultConfig()
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		nodeflags.Register(flags, &cfg)
		flags.String(settings.ConfigFlag, file, "")
		write(t, file, text)
		if settings.Apply(t.Context(), flags, known) == nil {
			_ = cfg.Validate() // whatever it says
		}
	})
}
