package redisstore

import (
	"errors"
	"net"
	"strconv"

	"github.com/polyrail/polyrail/cluster"
)

// Limits of what a server may answer in one call.
const (
	maxItems      = 4 * cluster.MaxEntries // of all arrays: each may be in another one
	maxReplyBytes = cluster.MaxEntries*(cluster.MaxEntryBytes+64) + 1<<16
	maxLine       = 1 << 12
)

var errReply = errors.New("the server's reply is longer than any that is expected")

// guarded is a connection whose replies are bounded. go-redis allocates what a length in the reply
// asks for, so lengths are checked before it sees them.
type guarded struct {
	net.Conn
	total int    // bytes so far
	items int    // that arrays have announced so far
	line  []byte // of the line that is being read
	body  int    // bytes that are left of a string with a length, and of its line end
}

// Read passes on what keeps the limits.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.total += n; g.total > maxReplyBytes || !g.check(b[:n]) {
		return 0, errReply
	}
	return n, err
}

// check follows the protocol through the next bytes: lines, and strings whose line gives their
// length.
func (g *guarded) check(b []byte) bool {
	for len(b) > 0 {
		if g.body > 0 {
			skip := min(g.body, len(b))
			g.body -= skip
			b = b[skip:]
			continue
		}
		c := b[0]
		b = b[1:]
		if c != '\n' {
			if g.line = append(g.line, c); len(g.line) > maxLine {
				return false
			}
			continue
		}
		if !g.endLine() {
			return false
		}
		g.line = g.line[:0]
	}
	return true
}

// endLine looks for a length in the line that has ended.
func (g *guarded) endLine() bool {
	if len(g.line) < 2 || g.line[len(g.line)-1] != '\r' {
		return true // no line of the protocol; go-redis refuses it
	}
	n, err := strconv.Atoi(string(g.line[1 : len(g.line)-1]))
	switch g.line[0] {
	case '$', '=', '!': // strings
		if err != nil || n > maxReplyBytes {
			return false
		}
		if n >= 0 {
			g.body = n + len("\r\n")
		}
	case '*', '~', '>', '%', '|': // arrays and the like
		if err != nil || n > maxItems {
			return false
		}
		g.items += max(n, 0)
		return g.items <= maxItems
	}
	return true
}
