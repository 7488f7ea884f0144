package cluster

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// BenchmarkStates checks what a node says of 64 others, over a socket.
func BenchmarkStates(b *testing.B) {
	header := struct {
		Nodes, UserStateLen int
		Join                bool
	}{Nodes: 64}
	all := []any{header}
	for i := range header.Nodes {
		c := alive(fmt.Sprint("node", i), 7, 1, "10.0.0.1:7946", staying)
		all = append(all, nodeState{c.Node, c.Addr, c.Port, c.Meta, 1, memberlist.StateAlive, c.Vsn})
	}
	text := gossipOf("polyrail", msgPushPull, all...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()
	g := &guard{label: "polyrail", levels: newLevels("n1#7", time.Now())}
	for b.Loop() {
		if _, err := near.Write(text); err != nil {
			b.Fatal(err)
		}
		s := &guardedStream{Conn: far, guard: g, label: g.label}
		if err := s.check(time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
