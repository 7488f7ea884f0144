package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/polyrail/polyrail/railactors/transport"
)

// hello is what each end says once, beside the descriptors of its memory.
type hello struct {
	ring  int    // bytes
	shows bool   // a second descriptor is of what the process shows
	name  string // of the device
}

const (
	helloMagic   = 0x33306d6873726c70 // "plrshm03": the last two digits are the version of the layout
	maxName      = 96
	helloBytes   = 8 + 4 + 4 + 4 + maxName
	controlBytes = 4096 // before the ring: a page
)

func (h hello) encode() []byte {
	b := make([]byte, helloBytes)
	binary.LittleEndian.PutUint64(b, helloMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.ring))
	binary.LittleEndian.PutUint32(b[12:], uint32(len(h.name)))
	if h.shows {
		binary.LittleEndian.PutUint32(b[16:], transport.ShownBytes)
	}
	copy(b[20:], h.name)
	return b
}

// decodeHello reads what another process has written.
func decodeHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes || binary.LittleEndian.Uint64(b) != helloMagic {
		return h, errors.New("not a greeting of this version")
	}
	ring, length, shown := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	if ring < MinRing || ring > MaxRing || bits.OnesCount32(ring) != 1 {
		return h, fmt.Errorf("a ring of %d bytes", ring)
	}
	if length == 0 || length > maxName {
		return h, fmt.Errorf("a name of %d bytes", length)
	}
	if shown != 0 && shown != transport.ShownBytes {
		return h, fmt.Errorf("%d bytes are shown", shown)
	}
	return hello{ring: int(ring), shows: shown != 0, name: string(b[20 : 20+length])}, nil
}
