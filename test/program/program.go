// Package program runs members of a test as processes of their own: each is the test's program, which
// an environment variable tells what it is to be.
package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// lastWords is what a member has for them that was told to end.
const lastWords = 10 * time.Second

// Limit gives a started member so much longer to live. Then it is told to end and to say what it is
// at: its goroutines, on its standard error. So every wait for a member ends.
func Limit(cmd *exec.Cmd, d time.Duration) {
	time.AfterFunc(d, func() {
		if cmd.Process.Signal(syscall.SIGQUIT) == nil { // it has not ended
			time.AfterFunc(lastWords, func() { _ = cmd.Process.Kill() })
		}
	})
}

// Live is for TestMain. Where the variable is set this process is a member: it lives as it was told, and
// ends.
func Live[C any](variable string, life func(C) error) {
	told, member := os.LookupEnv(variable)
	if !member {
		return
	}
	var config C
	err := json.Unmarshal([]byte(told), &config)
	if err == nil {
		err = life(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Tell has a command that runs the test's program be a member.
func Tell(cmd *exec.Cmd, variable string, config any) error {
	text, err := json.Marshal(config)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return err
}
