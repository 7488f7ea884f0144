package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyrail/polyrail/collective/op"
)

func dataHeader() Header {
	return Header{
		Kind: KindData, Flags: FlagEager | FlagAckNow,
		Comm: 0x0102030405060708, Seq: 9, Table: 3, Digest: 0xfeedfacecafebeef,
		Desc: op.Descriptor{Kind: op.KindAllReduce, DType: op.F32, Code: op.CodeSum,
			Algorithm: op.Ring, Batch: 6, Elements: 1 << 20},
		Lane: 2, Step: 5, Round: 96, Block: 7, Count: 4, Length: MaxPayload, Group: 0x77 << 56, Running: 0x55,
		Generation: 0x2a, Number: 1234, Ack: 1233, Credit: 1 << 40,
	}
}

func TestAHeaderSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := rapid.Uint32Range(0, MaxCommonIdx/2)
		kind := Kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind"))
		h := Header{
			Kind:  kind,
			Flags: Flags(rapid.IntRange(0, int(flagsEnd)-1).Draw(t, "flags")),
			Comm:  rapid.Uint64().Draw(t, "comm"), Seq: rapid.Uint64().Draw(t, "seq"),
			Table: rapid.Uint32().Draw(t, "table"), Digest: rapid.Uint64().Draw(t, "digest"),
			Desc: op.Descriptor{
				Kind: rapid.SampledFrom(append([]op.Kind{op.KindBarrier}, op.Kinds...)).Draw(t,
					"operation"),
				DType:     rapid.SampledFrom(op.DTypes).Draw(t, "dtype"),
				Code:      op.Code(rapid.IntRange(1, 11).Draw(t, "code")),
				Algorithm: op.Algorithm(rapid.IntRange(1, 3).Draw(t, "algorithm")),
				Elements:  rapid.Uint64Range(0, MaxElements).Draw(t, "elements"),
			},
			Lane: rapid.Uint16().Draw(t, "lane"), Step: index.Draw(t, "step"), Round: index.Draw(t, "round"),
			Block: index.Draw(t, "block"), Count: index.Draw(t, "count"),
			Length:     rapid.Uint32Range(0, kind.maxLength()).Draw(t, "length"),
			Generation: rapid.Uint8().Draw(t, "generation"),
			Ack:        rapid.Uint64().Draw(t, "ack"), Credit: rapid.Uint64().Draw(t, "credit"),
		}
		if word := index.Draw(t, "root or batch"); h.Desc.Kind.Rooted() {
			h.Desc.Root = op.Rank(word)
		} else {
			h.Desc.Batch = int(word)
		}
		if kind.Numbered() {
			h.Number = rapid.Uint64Min(1).Draw(t, "number")
		}
		var b [Size]byte
		h.Encode(b[:])
		var got Header
		if err := Decode(b[:], &got); err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		if got != h {
			t.Fatalf("got %+v, want %+v", got, h)
		}
	})
}

// The layout is a promise to other versions and other hosts: it changes with Version only.
func TestTheLayoutStaysAsItIs(t *testing.T) {
	h := dataHeader()
	var b [Size]byte
	h.Encode(b[:])
	want := []byte{
		0x50, 0x52, 5, 3, 5, 0x2a, 2, 0, // magic, version, kind, flags, generation, lane
		8, 7, 6, 5, 4, 3, 2, 1, // comm
		9, 0, 0, 0, 0, 0, 0, 0, // seq
		0xef, 0xbe, 0xfe, 0xca, 0xce, 0xfa, 0xed, 0xfe, // digest
		0, 0, 0x10, 0, 0, 0, 0, 0, // elements
		0xd2, 4, 0, 0, 0, 0, 0, 0, // number
		0xd1, 4, 0, 0, 0, 0, 0, 0, // ack
		0, 0, 0, 0, 0, 1, 0, 0, // credit
		0, 0, 0, 0, 0, 0, 0, 0x77, // group
		0x55, 0, 0, 0, 0, 0, 0, 0, // running
		3, 0, 0, 0, 5, 0, 0, 0, // table, step
		96, 0, 0, 0, 7, 0, 0, 0, // round, block
		4, 0, 0, 0, 0, 0, 4, 0, // count, length
		6, 0, 0, 0, // root, or buffers of a batch
		1, 9, 1, 1, // allreduce, float32, sum, ring
	}
	if !bytes.Equal(b[:offChecksum], want) {
		t.Errorf("layout\n got %x\nwant %x", b[:offChecksum], want)
	}
	if got, want := binary.LittleEndian.Uint32(b[offChecksum:]), crc32.Checksum(want, castagnoli); got != want {
		t.Errorf("checksum %#x, want %#x", got, want)
	}
}

func TestAHeaderOutOfBoundsIsRefusedByName(t *testing.T) {
	cases := []struct {
		field  string
		value  uint64
		change func(*Header)
	}{
		{"kind", 0, func(h *Header) { h.Kind = 0 }},
		{"kind", uint64(kindEnd), func(h *Header) { h.Kind = kindEnd }},
		{"flags", 8, func(h *Header) { h.Flags = flagsEnd }},
		{"length", MaxPayload + 1, func(h *Header) { h.Length = MaxPayload + 1 }},
		{"length", MaxControl + 1, func(h *Header) { h.Kind, h.Length = KindControl, MaxControl+1 }},
		{"length", MaxControl + 1, func(h *Header) { h.Kind, h.Number, h.Length = KindHello, 0, MaxControl+1 }},
		{"length", 1, func(h *Header) { h.Kind, h.Length = KindGrant, 1 }},
		{"length", 1, func(h *Header) { h.Kind, h.Number, h.Length = KindAck, 0, 1 }},
		{"number", 0, func(h *Header) { h.Number = 0 }},
		{"number", 1234, func(h *Header) { h.Kind, h.Length = KindPing, 0 }},
		{"elements", MaxElements + 1, func(h *Header) { h.Desc.Elements = MaxElements + 1 }},
		{"step", MaxCommonIdx + 1, func(h *Header) { h.Step = MaxCommonIdx + 1 }},
		{"round", 1<<32 - 1, func(h *Header) { h.Round = 1<<32 - 1 }},
		{"block", MaxCommonIdx + 1, func(h *Header) { h.Block = MaxCommonIdx + 1 }},
		{"root or batch", MaxCommonIdx + 1, func(h *Header) { h.Desc.Batch = MaxCommonIdx + 1 }},
		{"root or batch", MaxCommonIdx + 1,
			func(h *Header) { h.Desc.Kind, h.Desc.Root = op.KindReduce, MaxCommonIdx+1 }},
		{"count", MaxCommonIdx + 1, func(h *Header) { h.Count = MaxCommonIdx + 1 }},
		{"round + count", MaxCommonIdx + 1, func(h *Header) { h.Round, h.Count = MaxCommonIdx, 1 }},
		{"operation's kind", 0, func(h *Header) { h.Desc.Kind = 0 }},
		{"operation's kind", 99, func(h *Header) { h.Kind, h.Length, h.Desc.Kind = KindGrant, 0, 99 }},
		{"operation's element type", 0, func(h *Header) { h.Desc.DType = 0 }},
		{"operation's element type", 77, func(h *Header) { h.Desc.Kind, h.Desc.DType = op.KindBarrier, 77 }},
		{"operation's operator", 0, func(h *Header) { h.Desc.Code = op.CodeNone }},
		{"operation's operator", 12, func(h *Header) { h.Desc.Code = op.CodeMaxLoc + 1 }},
		{"operation's algorithm", 0, func(h *Header) { h.Desc.Algorithm = op.Auto }},
	}
	for _, c := range cases {
		h := dataHeader()
		c.change(&h)
		var b [Size]byte
		h.Encode(b[:])
		wantFormatError(t, b[:], c.field, c.value)
	}
}

func TestForeignBytesAreRefused(t *testing.T) {
	good := func() []byte {
		h := dataHeader()
		b := make([]byte, Size)
		h.Encode(b)
		return b
	}
	b := good()
	wantFormatError(t, b[:Size-1], "size", Size-1)
	b[0] = 'G'
	wantFormatError(t, b, "magic", 'G'|'R'<<8)
	b = good()
	b[offVersion] = Version + 1 // with a checksum that is wrong for it: the version is what the reader must hear about
	wantFormatError(t, b, "version", Version+1)
	for i := offKind; i < Size; i++ {
		b = good()
		b[i] ^= 0x10
		wantFormatError(t, b, "checksum", uint64(binary.LittleEndian.Uint32(b[offChecksum:])))
	}
}

func TestABarrierNeedsNoTypeAndNoOperator(t *testing.T) {
	h := dataHeader()
	h.Desc = op.Descriptor{Kind: op.KindBarrier, Algorithm: op.RecursiveDoubling}
	var b [Size]byte
	h.Encode(b[:])
	var got Header
	if err := Decode(b[:], &got); err != nil || got != h {
		t.Errorf("got %+v, %v", got, err)
	}
}

func wantFormatError(t *testing.T, b []byte, field string, value uint64) {
	t.Helper()
	var h Header
	err := Decode(b, &h)
	var f *FormatError
	if !errors.As(err, &f) || f.Field != field || f.Value != value {
		t.Errorf("got %v, want a complaint about %s = %d", err, field, value)
	}
}

func FuzzDecode(f *testing.F) {
	h := dataHeader()
	b := make([]byte, Size)
	h.Encode(b)
	f.Add(b, false)
	f.Add(b[:20], true)
	f.Fuzz(func(t *testing.T, src []byte, seal bool) {
		src = bytes.Clone(src)
		if seal && len(src) >= Size { // past the checksum, to the bounds
			binary.LittleEndian.PutUint16(src, magic)
			src[offVersion] = Version
			binary.LittleEndian.PutUint32(src[offChecksum:], crc32.Checksum(src[:offChecksum], castagnoli))
		}
		var h Header
		if Decode(src, &h) != nil {
			return
		}
		if h.Length > MaxPayload || h.Step > MaxCommonIdx || uint64(h.Block) > MaxCommonIdx ||
			h.Desc.Elements > MaxElements {
			t.Errorf("accepted out of bounds: %+v", h)
		}
		var again [Size]byte
		h.Encode(again[:])
		if !bytes.Equal(again[:], src[:Size]) {
			t.Errorf("encodes to\n%x, was\n%x", again, src[:Size])
		}
	})
}

func FuzzDecodeCast(f *testing.F) {
	h := dataHeader()
	h.Group, h.Step, h.Length = 7, TreeDown, 3
	f.Add(AppendCast(nil, h, []byte("sum")), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, src []byte, seal bool) {
		src = bytes.Clone(src)
		if seal && len(src) >= Size {
			binary.LittleEndian.PutUint16(src, magic)
			src[offVersion] = Version
			binary.LittleEndian.PutUint32(src[offChecksum:], crc32.Checksum(src[:offChecksum], castagnoli))
		}
		var h Header
		payload, err := DecodeCast(src, &h)
		if err != nil {
			return
		}
		if h.Kind != KindData || h.Group == 0 || int(h.Length) != len(payload) || len(payload) != len(src)-Size {
			t.Errorf("accepted %+v with %d bytes", h, len(payload))
		}
	})
}

func TestACastSurvivesTheNetwork(t *testing.T) {
	h := dataHeader()
	h.Group, h.Step, h.Length, h.Ack = 7, TreeDown, 3, 9
	b := AppendCast(nil, h, []byte("sum"))
	var got Header
	payload, err := DecodeCast(b, &got)
	if err != nil || string(payload) != "sum" || got.Running != h.Running || got.Ack != 0 {
		t.Errorf("%q, %v, %+v", payload, err, got)
	}
	for _, bad := range [][]byte{b[:len(b)-1], append(b, 0), b[:Size-1]} {
		if _, err := DecodeCast(bad, &got); err == nil {
			t.Errorf("%d bytes are accepted", len(bad))
		}
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	h, b := dataHeader(), make([]byte, Size)
	if n := testing.AllocsPerRun(100, func() {
		h.Encode(b)
		if Decode(b, &h) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	h, dst := dataHeader(), make([]byte, Size)
	b.ReportAllocs()
	for b.Loop() {
		h.Encode(dst)
	}
}

func BenchmarkDecode(b *testing.B) {
	h, src := dataHeader(), make([]byte, Size)
	h.Encode(src)
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(src, &h); err != nil {
			b.Fatal(err)
		}
	}
}
