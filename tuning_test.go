package polyrail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

// tuned is limitedRails with a tuning file, and without equal shares by chance: the rails are 4 : 1.
func tuned(file string) func(*Config) {
	adapt, _ := limitedRails(40e6, 10e6)
	return func(c *Config) {
		adapt(c)
		c.TuningFile = file
	}
}

// firstOperations is the first rail's part of the first few operations of a size.
func (b *bed) firstOperations(comms []*Communicator, size int) float64 {
	first, _ := b.share(comms, 10, size)
	return first
}

// settled reports whether the shares of a size class have come to rest.
func (b *bed) settled(c *Communicator, class int) bool {
	b.t.Helper()
	r, err := c.Balance(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range r.Classes {
		if int(c.Class) == class {
			return c.Settled
		}
	}
	return false
}

func TestACommunicatorBeginsWithTheSharesOfTheTuningFile(t *testing.T) {
	for _, probe := range []bool{true, false} {
		file, others := filepath.Join(t.TempDir(), "tuning.yaml"), filepath.Join(t.TempDir(), "others.yaml")
		opposite := strings.Replace(tuningOfThree, "ranks: 3", "ranks: 2", 1)
		if err := os.WriteFile(others, []byte(opposite), 0o600); err != nil {
			t.Fatal(err)
		}
		run := func(f func(b *bed)) {
			t.Helper()
			inBed(t, 2, 2, func(c *Config) {
				tuned(file)(c)
				c.Probe = probe
				if c.Name == "node1" { // it needs none, and what another one says is its own affair
					c.TuningFile = others
				}
			}, f)
		}
		var before uint64
		run(func(b *bed) {
			comms := b.form("train")
			before = b.Nodes[0].Rails()[1].BytesSent // of the probe
			for range 10 {
				b.share(comms, 30, 1<<20)
				if b.settled(comms[0], 20) {
					break
				}
			}
			b.each(func(i int) error { return comms[i].Close(b.t.Context()) })
		})
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"version: 1", "ranks: 2", "name: rail0", "up-to: 1048576", "settled: true", "algorithm: ring"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%q is not in the file:\n%s", want, text)
			}
		}
		run(func(b *bed) {
			comms := b.form("again")
			if now := b.Nodes[0].Rails()[1].BytesSent; probe && now >= before {
				t.Errorf("forming with a tuning file sent %d bytes on rail1, the probe without one %d", now, before)
			}
			if !probe { // the table takes over after the two operations that rank 0 looks ahead
				b.each(func(i int) error {
					for range 2 {
						if err := comms[i].Barrier(b.t.Context()); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if got := b.firstOperations(comms, 1<<20); got < 0.77 || got > 0.83 {
				t.Errorf("probe %v: the first operations give the first rail %.3f, want 0.8 as learned before", probe, got)
			}
			if !b.settled(comms[0], 20) {
				t.Error("1 MiB had settled, and begins anew")
			}
		})
		if text, err := os.ReadFile(others); err != nil || string(text) != opposite {
			t.Errorf("rank 1 has written its file: %v\n%s", err, text)
		}
	}
}

// tuningOfThree gives the slow one of two rails nearly everything.
const tuningOfThree = `version: 1
tunings:
- ranks: 3
  rails: [{name: rail0, protocol: mem}, {name: rail1, protocol: mem}]
  saved: 2026-01-02T03:04:05Z
  classes:
  - {up-to: 1048576, algorithm: ring, shares: {rail0: 1, rail1: 95}, bytes: 1048576, windows: 9, settled: true}
  samples: []
`

func TestATuningFileThatDoesNotFitChangesNothing(t *testing.T) {
	other := tuningOfThree
	for name, c := range map[string]struct {
		text, log string
		kept      bool
	}{
		"broken":         {"version: 1\ntunings: [{ranks: 2", "tuning file is ignored, and left as it is", true},
		"later version":  {strings.Replace(other, "version: 1", "version: 2", 1), "version 2, this is version 1", true},
		"something else": {"root:x:0:0::/root:/bin/sh\n", "tuning file is ignored, and left as it is", true},
		"impossible":     {strings.Replace(other, "rail1: 95", "rail7: 95", 1), `rail "rail7"`, true},
		"other size":     {other, "the tuning file has nothing for this communicator", false},
		"other rails":    {strings.Replace(strings.Replace(other, "ranks: 3", "ranks: 2", 1), "rail1", "rail2", -1), "the tuning file has nothing for this communicator", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tuning.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			inBed(t, 2, 2, func(cfg *Config) {
				tuned(file)(cfg)
				if cfg.Name != "node0" {
					cfg.TuningFile = ""
				}
			}, func(b *bed) {
				comms := b.form("train")
				if got := b.firstOperations(comms, 1<<20); got < 0.7 || got > 0.9 {
					t.Errorf("the first operations give the first rail %.3f, the probe says 0.8", got)
				}
				b.share(comms, 40, 1<<20)
				if err := comms[0].SaveTuning(b.t.Context()); (err != nil) != c.kept {
					t.Errorf("SaveTuning: %v", err)
				} else if err != nil && !strings.Contains(err.Error(), file) {
					t.Errorf("%v does not name the file", err)
				}
				b.each(func(i int) error { return comms[i].Close(b.t.Context()) })
				lines := 0
				for line := range strings.Lines(b.log.String()) {
					if strings.Contains(line, "tuning file") && strings.Contains(line, "WARN") {
						lines++
						if !strings.Contains(line, file) {
							t.Errorf("the line does not name the file: %s", line)
						}
					}
				}
				if lines != 1 || !strings.Contains(b.log.String(), c.log) {
					t.Errorf("%d warnings of the tuning file, want one with %q:\n%s", lines, c.log, b.log)
				}
			})
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if kept := string(text) == c.text; kept != c.kept {
				t.Errorf("the file was left as it was: %v; it is now\n%s", kept, text)
			}
			if !c.kept && !(strings.Contains(string(text), "ranks: 2") && strings.Contains(string(text), "rail1: ")) {
				t.Errorf("the file lacks this communicator's rails:\n%s", text)
			}
			if c.text == other && !strings.Contains(string(text), "ranks: 3") {
				t.Errorf("the file has lost what it had for others:\n%s", text)
			}
		})
	}
}

func TestTheTuningFileIsWrittenWhileOperationsRunAndWhenTheNodeCloses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	var text []byte
	inBed(t, 2, 2, func(c *Config) { tuned(file)(c) }, func(b *bed) {
		comms := b.form("train")
		b.share(comms, 30, 1<<20)
		if _, err := os.Stat(file); err == nil {
			t.Error("the file is there before a minute has passed")
		}
		for range 7 {
			<-time.After(10 * time.Second)
			b.share(comms, 30, 1<<20)
		}
		var err error
		if text, err = os.ReadFile(file); err != nil {
			t.Error(err)
		}
		if err := comms[1].SaveTuning(b.t.Context()); err == nil || !strings.Contains(err.Error(), `"node0"`) {
			t.Errorf("SaveTuning on rank 1: %v, want an error that names rank 0's node", err)
		}
		b.share(comms, 30, 4<<20)
	})
	after, err := os.ReadFile(file)
	if err != nil || string(after) == string(text) || !strings.Contains(string(after), "up-to: 4194304") {
		t.Errorf("what was learned before the node closed is not in the file (%v):\n%s", err, after)
	}
}

func TestATuningFileIsOfNoUseWhereNothingIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	inBed(t, 2, 2, func(c *Config) { c.TuningFile = file }, func(b *bed) {
		b.share(b.form("train"), 30, 1<<20)
		if !strings.Contains(b.log.String(), "the tuning file is not used") {
			t.Errorf("nothing is said about it:\n%s", b.log)
		}
	})
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

func TestTheTuningFileIsWrittenWhenACommunicatorShrinks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.yaml")
	inBed(t, 3, 2, tuned(file), func(b *bed) {
		comms := b.form("train")
		b.share(comms, 30, 1<<20)
		b.each(func(i int) error {
			_, _, err := comms[i].Shrink(b.t.Context())
			return err
		})
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "ranks: 3") {
			t.Errorf("what three ranks have learned is not in the file (%v):\n%s", err, text)
		}
	})
}
