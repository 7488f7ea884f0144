package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Limits of what is read from a store: whoever can write to it can put anything there.
const (
	MaxEntryBytes = 4096 // of one entry
	MaxEntries    = 256  // of one cluster; the latest ones are looked at
)

// entryFormat is the version of what Encode writes. Entries of other versions are ignored.
const entryFormat = 1

// Entry is what a process leaves in a Store for others to find it by. It stays the same for the
// life of the process. When it was written, and so when it expires, is the store's to know.
type Entry struct {
	Cluster     string
	Node        string
	Incarnation uint64
	Addr        string // of its gossip, ADDR:PORT
}

// entryJSON is an entry as text: operators read it.
type entryJSON struct {
	Format      int    `json:"format"`
	Cluster     string `json:"cluster"`
	Node        string `json:"node"`
	Incarnation uint64 `json:"incarnation,string"` // other readers of JSON would round it
	Addr        string `json:"gossip"`
}

// Process names the process of the entry: the node and its incarnation. It is unique
// in the cluster and contains no slash.
func (e Entry) Process() string { return processName(e.Node, e.Incarnation) }

// Encode writes the entry, always with the same bytes.
func (e Entry) Encode() []byte {
	b, err := json.Marshal(entryJSON{entryFormat, e.Cluster, e.Node, e.Incarnation, e.Addr})
	if err != nil {
		panic(fmt.Sprintf("cluster: entry %+v: %v", e, err)) // strings and numbers always encode
	}
	return b
}

// DecodeEntry reads what Encode wrote. It accepts nothing that a node could not have written.
func DecodeEntry(b []byte) (Entry, error) {
	if len(b) > MaxEntryBytes {
		return Entry{}, fmt.Errorf("entry of more than %d bytes", MaxEntryBytes)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	var j entryJSON
	if err := d.Decode(&j); err != nil {
		return Entry{}, fmt.Errorf("entry is no JSON of the right form: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Entry{}, errors.New("something follows the entry")
	}
	e := Entry{j.Cluster, j.Node, j.Incarnation, j.Addr}
	addr, err := netip.ParseAddrPort(e.Addr)
	switch {
	case j.Format != entryFormat:
		return Entry{}, fmt.Errorf("entry of format %d, not %d", j.Format, entryFormat)
	case !validCluster(e.Cluster):
		return Entry{}, fmt.Errorf("entry with cluster name of %d bytes", len(e.Cluster))
	case !validNode(e.Node):
		return Entry{}, errors.New("entry with a malformed node name")
	case e.Incarnation == 0:
		return Entry{}, errors.New("entry with incarnation 0")
	case err != nil || addr.Port() == 0 || addr.Addr().IsUnspecified() || addr.Addr().IsMulticast():
		return Entry{}, fmt.Errorf("entry of node %q with an address that nobody can have", e.Node)
	}
	return e, nil
}
