package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// What a command prints ends up in logs that more people read than may know a password.
func TestAnErrorRepeatsNoPassword(t *testing.T) {
	for _, url := range []string{"redis://u:s3cret@h:port/0", "redis://u:s3cret@h:1/x",
		"http://u:s3cret@h"} {
		_, _, errs := node(t, "run", "--rendezvous", url)
		if strings.Contains(errs, "s3cret") || !strings.Contains(errs, "--rendezvous: ") {
			t.Errorf("%s: %s", url, errs)
		}
	}
}

// Another node, or whoever has its address, may write to the terminal of an operator.
func TestAnErrorIsOnePrintableLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
		fmt.Fprint(c, "HTTP/1.1 500 \x1b[2Jx\rnode: all is well\r\nContent-Length: 1\r\n\r\n\x07")
	}()
	code, _, errs := node(t, "status", "--http", l.Addr().String())
	line, ended := strings.CutSuffix(errs, "\n")
	if code != exitFailure || !ended || line != printable(line) ||
		!strings.Contains(line, "all is well") {
		t.Errorf("%d %q", code, errs)
	}
}
