package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// hello is what each end says once, beside the descriptor of its memory.
type hello struct {
	ring int    // bytes
	name string // of the device
}

const (
	helloMagic   = 0x32306d6873726c70 // "plrshm02": the last two digits are the version of the layout
	maxName      = 96
	helloBytes   = 8 + 4 + 4 + maxName
	controlBytes = 4096 // before the ring: a page
)

func (h hello) encode() []byte {
	b := make([]byte, helloBytes)
	binary.LittleEndian.PutUint64(b, helloMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.ring))
	binary.LittleEndian.PutUint32(b[12:], uint32(len(h.name)))
	copy(b[16:], h.name)
	return b
}

// decodeHello reads what another process has written.
func decodeHello(b []byte) (h hello, err error) {
	if len(b) != helloBytes || binary.LittleEndian.Uint64(b) != helloMagic {
		return h, errors.New("not a greeting of this version")
	}
	ring, length := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if ring < MinRing || ring > MaxRing || bits.OnesCount32(ring) != 1 {
		return h, fmt.Errorf("a ring of %d bytes", ring)
	}
	if length == 0 || length > maxName {
		return h, fmt.Errorf("a name of %d bytes", length)
	}
	return hello{ring: int(ring), name: string(b[16 : 16+length])}, nil
}
