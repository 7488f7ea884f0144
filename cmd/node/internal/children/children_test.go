package children

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The test binary is its own child: CHILD tells it what to do.
func TestMain(m *testing.M) {
	switch os.Getenv("CHILD") {
	case "":
		os.Exit(m.Run())
	case "talk":
		fmt.Println("out", os.Args[1])
		fmt.Fprint(os.Stderr, "first\nlast")
	case "fail":
		fmt.Fprintln(os.Stderr, "broken")
		os.Exit(3)
	case "early": // when the late one waits
		meet(os.O_RDONLY)
		os.Exit(3)
	case "wait", "complain", "late": // until SIGTERM
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		if os.Getenv("CHILD") == "late" {
			meet(os.O_WRONLY)
		}
		fmt.Println("waiting")
		<-stop
		switch os.Getenv("CHILD") {
		case "complain":
			fmt.Fprintln(os.Stderr, "interrupted")
		case "late":
			os.Exit(3)
		}
	}
}

// meet opens a pipe, which waits until another child opens its other end.
func meet(how int) {
	pipe, err := os.OpenFile(os.Getenv("PIPE"), how, 0)
	if err != nil {
		panic(err)
	}
	pipe.Close()
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOutputIsMergedByLines(t *testing.T) {
	var group []Child
	for i := range 4 {
		group = append(group, Child{Name: fmt.Sprint("c", i), Args: []string{fmt.Sprint(i)}, Env: []string{"CHILD=talk"}})
	}
	var out, errs bytes.Buffer
	if err := Run(t.Context(), self(t), group, &out, &errs); err != nil {
		t.Fatal(err)
	}
	if got := sorted(out.String()); got != "out 0|out 1|out 2|out 3" {
		t.Errorf("stdout %s", got)
	}
	if got := sorted(errs.String()); got != "c0: first|c0: last|c1: first|c1: last|c2: first|c2: last|c3: first|c3: last" {
		t.Errorf("stderr %s", got)
	}
}

func sorted(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "|")
}

func TestTheFirstFailureEndsAllAndIsNamed(t *testing.T) {
	group := []Child{
		{Name: "good", Env: []string{"CHILD=wait"}},
		{Name: "bad", Env: []string{"CHILD=fail"}},
	}
	var errs bytes.Buffer
	err := Run(t.Context(), self(t), group, io.Discard, &errs)
	if err == nil || err.Error() != "process bad: exit status 3" {
		t.Errorf("error %v", err)
	}
	if errs.String() != "bad: broken\n" {
		t.Errorf("stderr %q", errs.String())
	}
}

// The one that ends first may be the victim of another: where several fail, it alone isn't blamed.
func TestSeveralFailuresAreCounted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	group := []Child{
		{Name: "good", Env: []string{"CHILD=wait"}},
		{Name: "cause", Env: []string{"CHILD=late", "PIPE=" + pipe}},
		{Name: "victim", Env: []string{"CHILD=early", "PIPE=" + pipe}},
	}
	err := Run(t.Context(), self(t), group, io.Discard, io.Discard)
	if want := "process victim: exit status 3 (the first of 2 to fail, maybe because of another)"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestCancelEndsTheChildren(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	group := []Child{{Name: "a", Env: []string{"CHILD=complain"}}, {Name: "b", Env: []string{"CHILD=complain"}}}
	var errs bytes.Buffer
	err := Run(ctx, self(t), group, &cancelAt{cancel: cancel, writes: 2}, &errs)
	if !errors.Is(err, context.Canceled) || errs.Len() > 0 {
		t.Errorf("error %v, want the context's alone; and %q", err, errs.String())
	}
}

// cancelAt cancels at the given write: here, when all children are running.
type cancelAt struct {
	cancel func()
	writes int
}

func (c *cancelAt) Write(b []byte) (int, error) {
	if c.writes--; c.writes == 0 {
		c.cancel()
	}
	return len(b), nil
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestOutputThatCannotBeWrittenEndsAllAndIsNamed(t *testing.T) {
	group := []Child{{Name: "a", Env: []string{"CHILD=wait"}}, {Name: "b", Env: []string{"CHILD=wait"}}}
	err := Run(t.Context(), self(t), group, full{}, io.Discard)
	if err == nil || err.Error() != "what processes print: no space left" {
		t.Errorf("error %v", err)
	}
}

func TestAMissingProgramIsAnError(t *testing.T) {
	if err := Run(t.Context(), "/nowhere/program", []Child{{Name: "a"}}, io.Discard, io.Discard); err == nil {
		t.Error("a program that does not exist was run")
	}
}

func TestLongLinesAreNotHeldBack(t *testing.T) {
	var out bytes.Buffer
	p := &linePrefixer{to: &lines{w: &out}}
	long := bytes.Repeat([]byte("x"), maxLine+1)
	if _, err := p.Write(long); err != nil {
		t.Fatal(err)
	}
	if out.Len() != maxLine+1 || len(p.partial) != 0 {
		t.Errorf("%d bytes written, %d held back", out.Len(), len(p.partial))
	}
}
