// Package shm is the transport between processes of one host: a ring of bytes in shared memory for
// each direction of a connection (docs/decisions/036).
//
// Each end writes to memory of its own alone, a sealed memfd that the other end maps read-only: so a
// peer can't change what was validated here, and one that is killed holds nothing that anybody waits
// for. A Unix socket in the abstract namespace passes the memfds and then stays open: its end is the
// connection's end, and a byte on it wakes whoever sleeps. Nothing stays in the file system.
//
// It owns rings, their memory and the sockets. What the bytes mean is the pair's (railactors).
package shm

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"

	"github.com/polyrail/polyrail/railactors/transport"
)

// Protocol is the transport's name.
const Protocol = "shm"

// Limits of a ring, in bytes. A peer's ring has to be within them too.
const (
	MinRing = 16 << 10
	MaxRing = 16 << 20
)

const (
	defaultRing = 1 << 20 // holds the frames that a rank sends before it takes any, up to operations of 1 MiB
	defaultMax  = 64 << 20
)

// Options bound the memory. Zero values mean the defaults.
type Options struct {
	// RingBytes is the memory of one direction of a connection, a power of two; 1 MiB.
	RingBytes int
	// MaxBytes bounds the memory of a device's connections, of this end's rings alone; 64 MiB. When
	// it gets scarce, new connections get smaller rings, and when it is gone, none.
	MaxBytes int
}

// Validate reports what is wrong with the options, or nil.
func (o Options) Validate() error {
	var faults []error
	if r := o.RingBytes; r != 0 && (r < MinRing || r > MaxRing || bits.OnesCount(uint(r)) != 1) {
		faults = append(faults, fmt.Errorf("ring of %d bytes: must be a power of two from %d to %d", r, MinRing, MaxRing))
	}
	if o.MaxBytes != 0 && o.MaxBytes < cmp.Or(o.RingBytes, defaultRing) {
		faults = append(faults, fmt.Errorf("shared memory of %d bytes: needs room for a ring of %d",
			o.MaxBytes, cmp.Or(o.RingBytes, defaultRing)))
	}
	return errors.Join(faults...)
}

// New makes a transport whose devices and connections have these options.
func New(o Options) transport.Transport {
	o.RingBytes, o.MaxBytes = cmp.Or(o.RingBytes, defaultRing), cmp.Or(o.MaxBytes, defaultMax)
	return &shm{o}
}

type shm struct{ options Options }

func (s *shm) Protocol() string { return Protocol }

// Open opens this process's end. There is one device on a host: its name says nothing.
func (s *shm) Open(string) (transport.Device, error) {
	if err := s.options.Validate(); err != nil {
		return nil, err
	}
	d, err := openDevice(s.options)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	return d, nil
}

// Addr is where a device, or an end of a connection, is found.
type Addr string

// Network implements net.Addr.
func (Addr) Network() string { return Protocol }

func (a Addr) String() string { return string(a) }
