package settings

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type flags struct {
	config string
	ranks  int
	check  bool
	wait   time.Duration
	join   []string
	sizes  []int
	eager  int
}

// parse parses args as a command would, then applies environment and file.
func parse(t *testing.T, args ...string) (*flags, error) {
	t.Helper()
	f := &flags{sizes: []int{8}, eager: 64 << 10}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&f.config, ConfigFlag, "", "")
	fs.IntVar(&f.ranks, "ranks", 1, "")
	fs.BoolVar(&f.check, "check", false, "")
	fs.DurationVar(&f.wait, "rank-timeout", time.Second, "")
	List(fs, &f.join, "join", "ADDR,...", ", ", ParseAsIs, format, "")
	SizesVar(fs, &f.sizes, "sizes", "")
	SizeVar(fs, &f.eager, "eager-bytes", "")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return f, Apply(t.Context(), fs, func(key string) bool { return fs.Lookup(key) != nil || key == "of-another-command" })
}

func format(s string) string { return s }

func mustParse(t *testing.T, args ...string) *flags {
	t.Helper()
	f, err := parse(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCommandLineWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := writeConfig(t, "ranks: 2\nrank-timeout: 2s\neager-bytes: 2KiB\n")
	t.Setenv("POLYRAIL_RANKS", "3")
	t.Setenv("POLYRAIL_RANK_TIMEOUT", "3s")
	f := mustParse(t, "--config", file, "--ranks", "4")
	if f.ranks != 4 {
		t.Errorf("ranks = %d, want the command line's 4", f.ranks)
	}
	if f.wait != 3*time.Second {
		t.Errorf("rank-timeout = %v, want the environment's 3s", f.wait)
	}
	if f.eager != 2048 {
		t.Errorf("eager-bytes = %d, want the file's 2048", f.eager)
	}
	if !slices.Equal(f.sizes, []int{8}) {
		t.Errorf("sizes = %v, want the default", f.sizes)
	}
}

func TestListsReadTheSameEverywhere(t *testing.T) {
	want := []int{8, 1024, 1 << 20}
	t.Run("command line", func(t *testing.T) {
		if f := mustParse(t, "--sizes", "8,1KiB", "--sizes", "1M"); !slices.Equal(f.sizes, want) {
			t.Errorf("sizes = %v, want %v", f.sizes, want)
		}
	})
	t.Run("environment", func(t *testing.T) {
		t.Setenv("POLYRAIL_SIZES", "8,1KiB,1M")
		if f := mustParse(t); !slices.Equal(f.sizes, want) {
			t.Errorf("sizes = %v, want %v", f.sizes, want)
		}
	})
	for name, text := range map[string]string{"file, a list": "sizes: [8, 1KiB, 1M]", "file, a string": "sizes: 8,1KiB,1M"} {
		t.Run(name, func(t *testing.T) {
			if f := mustParse(t, "--config", writeConfig(t, text)); !slices.Equal(f.sizes, want) {
				t.Errorf("sizes = %v, want %v", f.sizes, want)
			}
		})
	}
}

func TestTheFileMayBeNamedByTheEnvironment(t *testing.T) {
	t.Setenv("POLYRAIL_CONFIG", writeConfig(t, "check: true\njoin:\n- a:1\n- b:2\n"))
	f := mustParse(t)
	if !f.check || !slices.Equal(f.join, []string{"a:1", "b:2"}) {
		t.Errorf("check %v, join %v: not what the file says", f.check, f.join)
	}
}

func TestValuesAreTakenAsTheyAreWritten(t *testing.T) {
	f := mustParse(t, "--config", writeConfig(t, "join: [007, 2001-01-01, 0x10, &x 1e3, *x, yes, '~']\nranks: ~\n"))
	if want := []string{"007", "2001-01-01", "0x10", "1e3", "1e3", "yes", "~"}; !slices.Equal(f.join, want) || f.ranks != 1 {
		t.Errorf("join %q, ranks %d, want %q and the default", f.join, f.ranks, want)
	}
	mustParse(t, "--config", writeConfig(t, ""))
	mustParse(t, "--config", writeConfig(t, "# nothing\n"))
}

func TestOneFileServesAllCommands(t *testing.T) {
	mustParse(t, "--config", writeConfig(t, "of-another-command: 1\nranks: 2\n"))
}

func TestFaultsNameTheirSource(t *testing.T) {
	for _, c := range []struct {
		name, yaml, env string
		want            []string
	}{
		{"unknown key", "rnaks: 2", "", []string{"node.yaml", `unknown key "rnaks"`}},
		{"nested key", "rail:\n  eth0: tcp", "", []string{`unknown key "rail"`}},
		{"file in a file", "config: other.yaml", "", []string{`unknown key "config"`}},
		{"another spelling of a key", "ranks: 2\nRanks: 3", "", []string{`unknown key "Ranks"`}},
		{"a key twice", "ranks: 2\nranks: 3", "", []string{"node.yaml", "already defined"}},
		{"a second document", "ranks: 2\n---\nranks: 3", "", []string{"node.yaml", "second document"}},
		{"a time without a unit", "rank-timeout: 2", "", []string{"key rank-timeout", `"2" has no unit`, `"1s"`}},
		{"several of what there is one of", "ranks: [2, 3]", "", []string{"key ranks", "one value is wanted"}},
		{"a list in a list", "sizes: [[8]]", "", []string{"key sizes", "a value or a list"}},
		{"keys for a value", "sizes: {a: 8}", "", []string{"key sizes", "a value or a list"}},
		{"no value in a list", "sizes: [8, ~]", "", []string{"key sizes", "a value or a list"}},
		{"a size of another notation", "eager-bytes: 0x10", "", []string{"key eager-bytes", "0x10"}},
		{"a file without an end", strings.Repeat("# and on\n", MaxFileBytes/9+1), "", []string{"node.yaml", "longer than 1MiB"}},
		{"not YAML", "ranks: [", "", []string{"node.yaml"}},
		{"wrong value in the file", "sizes: [8, 1Kb]", "", []string{"node.yaml", "key sizes", "1Kb"}},
		{"wrong value in the environment", "", "four", []string{"POLYRAIL_RANKS", `"four" is not a whole number`}},
		{"a number without an end", "", "99999999999999999999", []string{"POLYRAIL_RANKS", "out of range"}},
		{"another word for true", "check: on", "", []string{"key check", `"on" is neither true nor false`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var args []string
			if c.yaml != "" {
				args = []string{"--config", writeConfig(t, c.yaml)}
			}
			t.Setenv("POLYRAIL_RANKS", c.env)
			_, err := parse(t, args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
	t.Run("missing file", func(t *testing.T) {
		if _, err := parse(t, "--config", "/nowhere/node.yaml"); err == nil || !strings.Contains(err.Error(), "/nowhere/node.yaml") {
			t.Errorf("error %v does not name the file", err)
		}
	})
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int{
		"0": 0, "8": 8, "8B": 8, "1k": 1024, "1K": 1024, "1KiB": 1024, "64KiB": 65536,
		"1m": 1 << 20, "1M": 1 << 20, "16MiB": 16 << 20, "2G": 2 << 30, "2GiB": 2 << 30,
	} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "B", "KiB", "-8", "1kB", "1KB", "1MB", "1.5M", "8 ", "9223372036854775807K", "1KiBB", "0x10"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
	for _, n := range []int{0, 1, 8, 1000, 1024, 1536, 65536, 1 << 20, 3 << 20, 1<<20 + 1, 2 << 30} {
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Errorf("ParseSize(FormatSize(%d)) = %d, %v", n, got, err)
		}
	}
}

func TestAChildsEnvironmentHasNoTwins(t *testing.T) {
	got := WithoutTwins([]string{"HOME=/", "POLYRAIL_NAME=a", "POLYRAIL=b"})
	if want := []string{"HOME=/", "POLYRAIL=b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
