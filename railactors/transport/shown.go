package transport

import "sync/atomic"

// ShownBytes is how much memory a Shower shows.
const ShownBytes = 64 << 10

// Shower is a Device that shows memory of this process to the processes at the other ends of its
// connections. They can't write it.
type Shower interface {
	// Shown is that memory, all zero at first; nil: there is none. The device holds it until Close.
	Shown() *Memory
	// Knocks are received from after a Knock of another process, and when a connection has ended.
	Knocks() <-chan struct{}
}

// Viewer is a Conn to a process that may show memory.
type Viewer interface {
	// View is that memory, which can't be written. The caller holds it. nil: it shows none, or the
	// connection is closed.
	View() *Memory
	// Knock wakes the other process, which then sees what was written here before. False: it may
	// not.
	Knock() bool
}

// Memory is memory of several processes, mapped as long as somebody holds it.
type Memory struct {
	bytes   []byte
	release func()
	holders atomic.Int32
}

// NewMemory makes one that its caller holds. When nobody does, release is called once.
func NewMemory(bytes []byte, release func()) *Memory {
	m := &Memory{bytes: bytes, release: release}
	m.holders.Store(1)
	return m
}

// Bytes may be used by who holds the memory.
func (m *Memory) Bytes() []byte { return m.bytes }

// Hold is for one more, given by somebody who holds it.
func (m *Memory) Hold() { m.holders.Add(1) }

// Release ends a hold.
func (m *Memory) Release() {
	if m.holders.Add(-1) == 0 {
		m.release()
	}
}
