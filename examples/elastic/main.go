// Command elastic trains a small model on several processes, through the death of one and its
// return: the others shrink the group and go on with its share of the data, and grow again when it
// is back.
//
//	go run ./examples/elastic
//
// starts four workers on loopback, kills one in the midst of training, and starts it again.
// train.go is what an application would take over.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/polyrail/polyrail"
)

func main() {
	name := flag.String("worker", "", "run as the worker of this name (the program does so itself)")
	dir := flag.String("dir", "", "directory where the workers find each other")
	world := flag.Int("world", 4, "number of workers")
	flag.Parse()
	var err error
	if *name == "" {
		err = demonstrate(os.Stdout, *world)
	} else {
		err = work(*name, *dir, *world)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// work is one worker's life. It stops when all workers' standard inputs are closed.
func work(name, dir string, world int) error {
	ctx := context.Background()
	cfg := polyrail.DefaultConfig()
	cfg.Name, cfg.Rendezvous.Directory = name, dir
	cfg.Rails = []polyrail.Rail{{Name: "r0", Protocol: "tcp", Device: "127.0.0.1"}, {Name: "r1", Protocol: "tcp", Device: "127.0.0.1"}}
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	size := 0
	t := &trainer{node: node, world: world, stop: stop, report: func(step, members int, loss float32) {
		if members != size || step%100 == 0 {
			size = members
			fmt.Printf("%s: step %d, %d members, loss %.4f\n", name, step, members, loss)
		}
	}}
	if err := t.train(ctx); err != nil {
		return err
	}
	fmt.Printf("%s: %v\n", name, t)
	closing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return node.Close(closing)
}

// worker is a process of this program.
type worker struct {
	*exec.Cmd
	stdin io.Closer
}

// demonstrate runs the workers and tells what they say.
func demonstrate(out io.Writer, world int) error {
	if world < 2 {
		return fmt.Errorf("-world %d: one worker is killed, and another one has to go on", world)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "elastic-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lines := make(chan string, 1024)
	workers := make([]*worker, world)
	start := func(i int) (err error) {
		workers[i], err = startWorker(ctx, lines, "-worker", fmt.Sprintf("w%d", i), "-dir", dir, "-world", fmt.Sprint(world))
		return err
	}
	expect := func(word string) error {
		for {
			select {
			case line := <-lines:
				fmt.Fprintln(out, line)
				if strings.Contains(line, word) {
					return nil
				}
			case <-ctx.Done():
				return fmt.Errorf("waiting for %q: %w", word, ctx.Err())
			}
		}
	}
	for i := range workers {
		if err := start(i); err != nil {
			return err
		}
	}
	if err := expect("step 100,"); err != nil {
		return err
	}
	fmt.Fprintln(out, "-- killing w1")
	err = errors.Join(workers[1].Process.Kill(), expect(fmt.Sprintf("%d members", world-1)), expect("00,"))
	if err != nil {
		return err
	}
	workers[1].Wait() // "signal: killed"
	fmt.Fprintln(out, "-- starting w1 again")
	if err := errors.Join(start(1), expect(fmt.Sprintf("%d members", world)), expect("00,")); err != nil {
		return err
	}
	for _, w := range workers {
		w.stdin.Close()
	}
	for range workers {
		if err := expect("model"); err != nil {
			return err
		}
	}
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.Wait())
	}
	return errors.Join(errs...)
}

// startWorker runs this program again, and passes on the lines that it prints.
func startWorker(ctx context.Context, lines chan<- string, args ...string) (*worker, error) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process's output
		for s := bufio.NewScanner(stdout); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
			}
		}
	}()
	return &worker{cmd, stdin}, nil
}
