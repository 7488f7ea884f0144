package cluster

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/polyrail/polyrail/collective/reminder"
)

// A stream that begins with another label is of another cluster: one of the two names is wrong, or
// the address is. Both ends say so. An address is told of once in a while, and few of them.
const (
	maxStrangersName = 64 // bytes of its cluster's name in the log

	msgLabelled = 244 // what memberlist puts before a label and its length

	// otherCluster is the answer to such a stream. It does not tell this cluster's name.
	otherCluster = "this node is of another cluster"
	// maxUnread is how much of what a stranger says is read, so that it can read the answer: a
	// connection that is closed with bytes unread is reset.
	maxUnread = 64 << 10
)

// strangers are the addresses that were told of.
type strangers struct {
	mu   sync.Mutex
	told reminder.Reminders
}

// due reports whether to tell of an address now.
func (s *strangers) due(host string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told.Due(host, now)
}

// stranger refuses a stream that begins with header, which is not that of this cluster.
func (s *guardedStream) stranger(header []byte, now time.Time) error {
	if header[0] != msgLabelled || header[1] == 0 {
		return refused("a stream without a label")
	}
	name, n := header[2:], int(header[1])
	if n > len(name) {
		name = append(name, make([]byte, n-len(name))...)
		if _, err := io.ReadFull(s.Conn, name[len(header)-2:]); err != nil {
			return err
		}
	}
	cluster := string(name[:n])
	if g := s.guard; g.log != nil && g.strangers.due(s.host, now) {
		g.log.Warn("gossip refused: a node of another cluster", "from", s.host, "cluster", g.label,
			"its_cluster", cluster[:min(n, maxStrangersName)])
	}
	if !s.guard.sealed { // with keys nothing is said in the clear
		s.answer(otherCluster)
	}
	return refused("label %q", cluster)
}

// answer ends an exchange as memberlist does where it fails. The stream has a deadline.
func (s *guardedStream) answer(text string) {
	var b bytes.Buffer
	b.WriteByte(msgError)
	if err := codec.NewEncoder(&b, new(codec.MsgpackHandle)).Encode(struct{ Error string }{text}); err != nil {
		return
	}
	written := make(chan struct{})
	go func() { // the other end reads when it has written all
		_, _ = s.Conn.Write(b.Bytes())
		close(written)
	}()
	_, _ = io.CopyN(io.Discard, s.Conn, maxUnread) // until the other end closes
	<-written
}
