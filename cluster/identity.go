package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/collective/view"
)

// Member is a living process of a node.
type Member struct {
	Node        string
	Incarnation uint64
	Version     uint32 // of the protocol
	Addr        string // of its gossip, ADDR:PORT
	Path        string // of the switches above it, from the top down, as it is configured
}

func (m Member) process() string { return processName(m.Node, m.Incarnation) }

// processName is the name under which memberlist knows a process. With the incarnation in it, a
// node that comes back at once, or on another port, is a new member and not an update of a dead one.
func processName(node string, incarnation uint64) string {
	return node + "#" + strconv.FormatUint(incarnation, 16)
}

// maxProcess is the length of the longest process name.
const maxProcess = view.MaxNode + 1 + 16

// mayBeProcess tells names of processes from others, as far as every version of the protocol has
// them alike. identify looks at the rest, and tells why it refuses one.
func mayBeProcess(name string) bool {
	return len(name) <= maxProcess && strings.Contains(name, "#")
}

const metaBytes = 13 // and a path of up to MaxPath

// MaxPath bounds a node's path, in bytes.
const MaxPath = 128

// What the byte before the path says.
const (
	staying byte = iota
	leaving
)

// encodeMeta is what gossip carries about a process: version, incarnation, whether it leaves, and
// its path. The version comes first in every version of the protocol.
func encodeMeta(version uint32, incarnation uint64, intent byte, path string) []byte {
	b := make([]byte, 0, metaBytes+len(path))
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint64(b, incarnation)
	return append(append(b, intent), path...)
}

// ValidPath reports whether a path can be a node's: names with a slash between any two.
func ValidPath(path string) bool {
	if path == "" {
		return true
	}
	return len(path) <= MaxPath && utf8.ValidString(path) &&
		!slices.Contains(strings.Split(path, "/"), "") && !strings.ContainsFunc(path, unicode.IsControl)
}

// leaves reports whether a node that identify accepts says that it leaves.
func leaves(n *memberlist.Node) bool { return n.Meta[metaBytes-1] == leaving }

// identify reads a member from what memberlist tells. Its error is a *VersionError.
func identify(self Member, n *memberlist.Node) (Member, error) {
	m := Member{Addr: net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))}
	name, hex, ok := strings.Cut(n.Name, "#")
	bad := func(explanation string) (Member, error) {
		return m, &VersionError{Node: n.Name, Addr: m.Addr, Mine: self.Version, ThisNode: self.Node, Explanation: explanation}
	}
	if len(n.Meta) < 4 {
		return bad("no version in its metadata")
	}
	m.Node, m.Version = name, binary.LittleEndian.Uint32(n.Meta)
	if m.Version != self.Version {
		return m, &VersionError{Node: name, Addr: m.Addr, Theirs: m.Version, Mine: self.Version, ThisNode: self.Node}
	}
	incarnation, err := strconv.ParseUint(hex, 16, 64)
	switch {
	case !ok || err != nil || !validNode(name):
		return bad("its name is malformed")
	case len(n.Meta) < metaBytes || len(n.Meta) > metaBytes+MaxPath:
		return bad(fmt.Sprintf("%d bytes of metadata", len(n.Meta)))
	case binary.LittleEndian.Uint64(n.Meta[4:]) != incarnation:
		return bad("name and metadata disagree about its incarnation")
	case n.Meta[metaBytes-1] > leaving:
		return bad("its metadata says neither that it stays nor that it leaves")
	}
	m.Incarnation, m.Path = incarnation, string(n.Meta[metaBytes:])
	if !ValidPath(m.Path) {
		return bad("its path is malformed")
	}
	return m, nil
}

func (m Member) node() (*memberlist.Node, error) {
	host, port, err := net.SplitHostPort(m.Addr)
	if err != nil {
		return nil, err
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, errors.New("not an IP address")
	}
	return &memberlist.Node{Name: m.process(), Addr: ip, Port: uint16(p)}, nil
}
