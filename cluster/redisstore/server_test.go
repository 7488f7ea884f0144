package redisstore

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server of the test's own, on a free port of loopback.
type server struct {
	addr string
	cmd  *exec.Cmd
	end  chan struct{} // closed when the process has ended
}

// startServer starts a server that keeps nothing on disk; the test's end ends it.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	const tries = 8 // another process may take the port that was free
	for range tries {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		if s := startServerAt(t, addr, args...); s != nil {
			return s
		}
	}
	t.Fatalf("redis-server did not start in %d tries", tries)
	return nil
}

// startServerAt is nil if the server ends before it is ready.
func startServerAt(t *testing.T, addr string, args ...string) *server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("SKIPPED: redis-server is not installed")
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(program, append([]string{"--bind", "127.0.0.1", "--port", port, "--save",
		"", "--appendonly", "no", "--dir", t.TempDir()}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{addr: addr, cmd: cmd, end: make(chan struct{})}
	ready := make(chan bool, 1)
	go func() {
		defer close(s.end)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				ready <- true
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		select {
		case ready <- false:
		default:
		}
	}()
	t.Cleanup(s.kill)
	if !<-ready {
		return nil
	}
	return s
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.end
}
