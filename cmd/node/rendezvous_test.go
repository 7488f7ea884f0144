package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// benchByRendezvous has processes meet in a directory where one that was killed has left its entry.
func benchByRendezvous(t *testing.T, program string) {
	dir := t.TempDir()
	common := []string{"--bind=127.0.0.1:0", "--rail=rail0=tcp:127.0.0.1", "--rendezvous=dir://" + dir}
	killed := exec.Command(program, append([]string{"run", "--name=killed"}, common...)...)
	log, err := killed.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "node is up") {
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	entries := func() (names []string) {
		files, _ := filepath.Glob(filepath.Join(dir, "cluster-polyrail", "*"))
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	if left := entries(); len(left) != 1 || !strings.HasPrefix(left[0], "killed#") {
		t.Fatalf("the killed process left %q", left)
	}
	const ranks = 3
	outputs, failures := make([]bytes.Buffer, ranks), make([]error, ranks)
	var running sync.WaitGroup
	for i := range ranks {
		args := append([]string{"bench", fmt.Sprintf("--name=r%d", i), fmt.Sprintf("--ranks=%d", ranks), "--sizes=8", "--min-time=20ms", "--check"}, common...)
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		if i == 0 { // one of them has it from the environment
			cmd.Args = cmd.Args[:len(cmd.Args)-1]
			cmd.Env = append(os.Environ(), "POLYRAIL_RENDEZVOUS=dir://"+dir)
		}
		running.Go(func() { failures[i] = cmd.Run() })
	}
	running.Wait()
	for i, err := range failures {
		if err != nil {
			t.Errorf("r%d: %v\n%s", i, err, outputs[i].String())
		}
	}
	for _, name := range entries() {
		if !strings.HasPrefix(name, "killed#") {
			t.Errorf("%s is left by a process that ended well", name)
		}
	}
}
