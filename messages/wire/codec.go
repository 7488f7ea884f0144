package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/polyrail/polyrail/collective/op"
)

// Where the fields stand. Every byte of a header belongs to a field, so what Decode
// accepts, Encode writes again. The checksum is last: one pass covers all before it.
const (
	offMagic      = 0
	offVersion    = 2
	offKind       = 3
	offFlags      = 4
	offGeneration = 5
	offLane       = 6
	offComm       = 8
	offSeq        = 16
	offDigest     = 24
	offElements   = 32
	offNumber     = 40
	offAck        = 48
	offCredit     = 56
	offGroup      = 64
	offRunning    = 72
	offTable      = 80
	offStep       = 84
	offRound      = 88
	offBlock      = 92
	offCount      = 96
	offLength     = 100
	offRoot       = 104
	offOperation  = 108
	offDType      = 109
	offCode       = 110
	offAlgorithm  = 111
	offChecksum   = 112
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FormatError says which field of a received header is not acceptable. It closes the
// connection that the header came from: nothing after it can be trusted.
type FormatError struct {
	Field string
	Value uint64
	Want  string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("frame header: %s is %d, want %s", e.Field, e.Value, e.Want)
}

// Encode writes the header to dst[:Size]. It panics when dst is shorter. The fields are
// not checked: a header out of bounds is refused by whoever decodes it.
func (h *Header) Encode(dst []byte) {
	b := (*[Size]byte)(dst)
	le := binary.LittleEndian
	le.PutUint16(b[offMagic:], magic)
	b[offVersion] = Version
	b[offKind] = byte(h.Kind)
	b[offFlags] = byte(h.Flags)
	b[offGeneration] = h.Generation
	le.PutUint16(b[offLane:], h.Lane)
	le.PutUint64(b[offComm:], h.Comm)
	le.PutUint64(b[offSeq:], h.Seq)
	le.PutUint64(b[offDigest:], h.Digest)
	le.PutUint64(b[offElements:], h.Desc.Elements)
	le.PutUint64(b[offNumber:], h.Number)
	le.PutUint64(b[offAck:], h.Ack)
	le.PutUint64(b[offCredit:], h.Credit)
	le.PutUint64(b[offGroup:], h.Group)
	le.PutUint64(b[offRunning:], h.Running)
	le.PutUint32(b[offTable:], h.Table)
	le.PutUint32(b[offStep:], h.Step)
	le.PutUint32(b[offRound:], h.Round)
	le.PutUint32(b[offBlock:], h.Block)
	le.PutUint32(b[offCount:], h.Count)
	le.PutUint32(b[offLength:], h.Length)
	le.PutUint32(b[offRoot:], h.Desc.RootOrBatch())
	b[offOperation] = byte(h.Desc.Kind)
	b[offDType] = byte(h.Desc.DType)
	b[offCode] = byte(h.Desc.Code)
	b[offAlgorithm] = byte(h.Desc.Algorithm)
	le.PutUint32(b[offChecksum:], crc32.Checksum(b[:offChecksum], castagnoli))
}

// Decode reads the header in src[:Size] into h. Whatever the bytes are, it returns with
// every field of h within its limit, or with a *FormatError that names the field; h is
// undefined then.
func Decode(src []byte, h *Header) error {
	if len(src) < Size {
		return &FormatError{"size", uint64(len(src)), fmt.Sprintf("%d bytes", Size)}
	}
	b := (*[Size]byte)(src)
	le := binary.LittleEndian
	if m := le.Uint16(b[offMagic:]); m != magic {
		return &FormatError{"magic", uint64(m), "that of polyrail (21072)"}
	}
	// Before the checksum: another version may keep its checksum elsewhere.
	if v := b[offVersion]; v != Version {
		return &FormatError{"version", uint64(v), fmt.Sprint(Version)}
	}
	if sum := le.Uint32(b[offChecksum:]); sum != crc32.Checksum(b[:offChecksum], castagnoli) {
		return &FormatError{"checksum", uint64(sum), "that of the header's bytes"}
	}
	h.Kind = Kind(b[offKind])
	h.Flags = Flags(b[offFlags])
	h.Generation = b[offGeneration]
	h.Lane = le.Uint16(b[offLane:])
	h.Comm = le.Uint64(b[offComm:])
	h.Seq = le.Uint64(b[offSeq:])
	h.Digest = le.Uint64(b[offDigest:])
	h.Number = le.Uint64(b[offNumber:])
	h.Ack = le.Uint64(b[offAck:])
	h.Credit = le.Uint64(b[offCredit:])
	h.Group = le.Uint64(b[offGroup:])
	h.Running = le.Uint64(b[offRunning:])
	h.Table = le.Uint32(b[offTable:])
	h.Step = le.Uint32(b[offStep:])
	h.Round = le.Uint32(b[offRound:])
	h.Block = le.Uint32(b[offBlock:])
	h.Count = le.Uint32(b[offCount:])
	h.Length = le.Uint32(b[offLength:])
	h.Desc = op.Descriptor{
		Kind:      op.Kind(b[offOperation]),
		DType:     op.DType(b[offDType]),
		Code:      op.Code(b[offCode]),
		Algorithm: op.Algorithm(b[offAlgorithm]),
		Elements:  le.Uint64(b[offElements:]),
	}
	h.Desc.SetRootOrBatch(le.Uint32(b[offRoot:]))
	return h.check()
}

// check holds the header against the limits of the format.
func (h *Header) check() error {
	switch {
	case h.Kind == 0 || h.Kind >= kindEnd:
		return &FormatError{"kind", uint64(h.Kind), "a kind of frame"}
	case h.Flags >= flagsEnd:
		return &FormatError{"flags", uint64(h.Flags), "flags of this version"}
	case h.Length > h.Kind.maxLength():
		return &FormatError{"length", uint64(h.Length), fmt.Sprintf("at most %d bytes in a frame of kind %d", h.Kind.maxLength(), h.Kind)}
	case h.Kind.Numbered() != (h.Number > 0):
		return &FormatError{"number", h.Number, fmt.Sprintf("1, 2, … in numbered frames and 0 in others (kind %d)", h.Kind)}
	case h.Desc.Elements > MaxElements:
		return &FormatError{"elements", h.Desc.Elements, "at most 2^40"}
	}
	for _, f := range [...]struct {
		name  string
		value uint32
	}{{"step", h.Step}, {"round", h.Round}, {"block", h.Block}, {"count", h.Count},
		{"root or batch", h.Desc.RootOrBatch()}} {
		if f.value > MaxCommonIdx {
			return &FormatError{f.name, uint64(f.value), "at most 2^24"}
		}
	}
	switch h.Kind {
	case KindData:
		if end := h.Round + h.Count; end > MaxCommonIdx { // two numbers up to 2^24 don't wrap
			return &FormatError{"round + count", uint64(end), "at most 2^24"}
		}
		return checkDescriptor(h.Desc)
	case KindGrant:
		if h.Flags&FlagUncredited != 0 {
			return nil // the answer to a Want names its operation by Comm and Seq alone
		}
		return checkDescriptor(h.Desc)
	}
	return nil
}

// maxLength is the limit of a frame's payload in bytes.
func (k Kind) maxLength() uint32 {
	switch k {
	case KindData:
		return MaxPayload
	case KindHello, KindRefuse, KindControl:
		return MaxControl
	}
	return 0
}

// checkDescriptor refuses what no rank can have called. A barrier and answers to a message have no
// type, and what has no arithmetic no operator.
func checkDescriptor(d op.Descriptor) error {
	switch {
	case !d.Kind.Valid():
		return &FormatError{"operation's kind", uint64(d.Kind), "a kind of collective"}
	case !d.DType.Valid() && !((d.Kind.Empty() || d.Kind == op.KindSendRecv) && d.DType == 0):
		return &FormatError{"operation's element type", uint64(d.DType), "an element type"}
	case !d.Code.Valid() || d.Code == op.CodeNone && d.Kind.Reduces():
		return &FormatError{"operation's operator", uint64(d.Code), "an operator"}
	case !d.Algorithm.Valid() && !(d.Kind == op.KindSendRecv && d.Algorithm == op.Auto):
		return &FormatError{"operation's algorithm", uint64(d.Algorithm), "an algorithm"}
	}
	return nil
}
