package program_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/polyrail/polyrail/test/program"
)

const memberEnv = "POLYRAIL_PROGRAM_MEMBER"

func TestMain(m *testing.M) {
	program.Live(memberEnv, waitInVain)
	os.Exit(m.Run())
}

// waitInVain is a member that never ends.
func waitInVain(greeting string) error {
	fmt.Println(greeting)
	for range time.NewTicker(time.Hour).C {
	}
	return nil
}

// Who waits for a member that never ends learns what it is at.
func TestAMemberBeyondItsLimitSaysWhatItIsAt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	if err := program.Tell(cmd, memberEnv, "hello"); err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if said := bufio.NewScanner(out); !said.Scan() || said.Text() != "hello" {
		t.Errorf("it says %q", said.Text())
	}
	program.Limit(cmd, time.Millisecond)
	if err := cmd.Wait(); err == nil {
		t.Error("it ended as if all was well")
	}
	if !strings.Contains(errs.String(), "waitInVain") {
		t.Errorf("it does not say what it is at: %q", errs.String())
	}
}
