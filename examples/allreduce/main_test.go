package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/polyrail/polyrail"
)

// Three processes, here in one, with two rails each.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "allreduce-") // where they meet
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	sums := make([]string, 3)
	var all sync.WaitGroup
	for i := range sums {
		cfg := polyrail.DefaultConfig()
		cfg.Name = fmt.Sprintf("process-%d", i)
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
		cfg.Rails = []polyrail.Rail{
			{Name: "r0", Protocol: "tcp", Device: "127.0.0.1"},
			{Name: "r1", Protocol: "tcp", Device: "127.0.0.1"},
		}
		cfg.Rendezvous.Directory = dir
		all.Go(func() {
			sum, err := addUp(ctx, cfg, len(sums), []float32{1, 2, float32(i)})
			sums[i] = fmt.Sprint(sum, err)
		})
	}
	all.Wait()
	for _, s := range sums {
		fmt.Println(s)
	}
	// Output:
	// [3 6 3] <nil>
	// [3 6 3] <nil>
	// [3 6 3] <nil>
}

// TestTheProgramInTheREADMECompiles: the one that a newcomer copies.
func TestTheProgramInTheREADMECompiles(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "```go\npackage main")
	program, _, ends := strings.Cut(program, "```")
	if !found || !ends {
		t.Fatal("the README has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte("package main"+program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
