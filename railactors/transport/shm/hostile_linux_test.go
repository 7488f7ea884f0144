package shm

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyrail/polyrail/railactors/transport"
)

// ends are the two ends of a ring, each in memory of its own.
func ends(ring int) (*sink, *source) {
	writer, reader, data := new(control), new(control), make([]byte, ring)
	return &sink{data: data, ours: writer, theirs: reader}, &source{data: data, ours: reader, theirs: writer}
}

// Whatever indices the other end writes, this one reads and writes within the ring, or says that it is
// corrupt.
func FuzzIndices(f *testing.F) {
	f.Add(uint64(10), uint64(0), uint64(0), uint16(5))
	f.Add(uint64(MinRing), uint64(1), uint64(MinRing), uint16(100))
	f.Add(^uint64(0), ^uint64(0), uint64(1), uint16(1))
	f.Fuzz(func(t *testing.T, written, read, base uint64, size uint16) {
		out, _ := ends(MinRing)
		_, in := ends(MinRing)
		buf := make([]byte, size)
		for range 3 {
			in.theirs.base.Store(base)
			in.theirs.written.Store(written)
			if n, err := in.look(); err == nil {
				if n < 0 || n > MinRing {
					t.Fatalf("%d bytes of input", n)
				}
				in.giveBack(len(in.next(len(buf))))
			} else if !errors.Is(err, errCorrupt) {
				t.Fatal(err)
			}
			out.theirs.read.Store(read)
			if n, err := out.room(); err == nil {
				if n < 0 || n > MinRing {
					t.Fatalf("room for %d bytes", n)
				}
				out.put(buf[:min(n, len(buf))])
				out.publish()
			}
			written, read = written+uint64(size), read+uint64(size)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(hello{ring: MinRing, name: "polyrail-0:1000"}.encode())
	f.Add(hello{ring: MinRing, shows: true, name: "polyrail-0:1000"}.encode())
	f.Add(hello{ring: 3 * MinRing, name: "polyrail-0:1000"}.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		again := h.encode()
		if back, err := decodeHello(again); err != nil || back != h {
			t.Errorf("%+v becomes %+v, %v", h, back, err)
		}
		if h.ring < MinRing || h.ring > MaxRing || h.ring&(h.ring-1) != 0 || len(h.name) > maxName {
			t.Errorf("accepted %+v", h)
		}
	})
}

func TestARingIsAStreamWhateverThePieces(t *testing.T) {
	out, in := ends(MinRing)
	var want, got bytes.Buffer
	for k := 1; want.Len() < 5*MinRing; k = k*7%997 + 1 {
		n, err := out.room()
		if err != nil {
			t.Fatal(err)
		}
		piece := bytes.Repeat([]byte{byte(k)}, min(n, 13*k))
		out.put(piece)
		out.publish()
		want.Write(piece)
		if _, err := in.look(); err != nil {
			t.Fatal(err)
		}
		takeAll(&got, in, 11*k)
	}
	in.look()
	takeAll(&got, in, MinRing)
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("other bytes came out")
	}
}

// takeAll takes what there is of n bytes. A ring's end is the end of a piece.
func takeAll(to *bytes.Buffer, in *source, n int) {
	for range 2 {
		piece := in.next(n)
		to.Write(piece)
		in.giveBack(len(piece))
		n -= len(piece)
	}
}

// dialRaw is a process that has the socket's name, and says what it likes.
func dialRaw(t *testing.T, d *device) *net.UnixConn {
	t.Helper()
	name, _, _ := strings.Cut(d.Addr(), ":")
	c, err := net.DialUnix("unix", nil, socketOf(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openOne(t *testing.T) *device {
	t.Helper()
	d, err := openDevice(Options{RingBytes: MinRing, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// memoryOf makes a memfd with these seals.
func memoryOf(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if size > 0 {
		if err := unix.Fallocate(fd, 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestMemoryThatCouldHarmIsTurnedDown(t *testing.T) {
	size := int64(controlBytes + MinRing)
	text := hello{ring: MinRing, name: "evil:0"}.encode()
	shows := hello{ring: MinRing, shows: true, name: "evil:0"}.encode()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for what, c := range map[string]struct {
		text []byte
		fds  []int
	}{
		"that can shrink":      {text, []int{memoryOf(t, size, unix.F_SEAL_GROW)}},
		"that is too small":    {text, []int{memoryOf(t, size-1, sizeSeals)}},
		"that is too large":    {text, []int{memoryOf(t, size+1, sizeSeals)}},
		"that is a file":       {text, []int{int(file.Fd())}},
		"twice":                {text, []int{memoryOf(t, size, sizeSeals), memoryOf(t, size, sizeSeals)}},
		"without a descriptor": {text, nil},
		"that shows what can shrink": {shows, []int{memoryOf(t, size, sizeSeals),
			memoryOf(t, transport.ShownBytes, unix.F_SEAL_GROW)}},
		"that shows too little": {shows, []int{memoryOf(t, size, sizeSeals),
			memoryOf(t, transport.ShownBytes-1, sizeSeals)}},
		"that shows nothing after all": {shows, []int{memoryOf(t, size, sizeSeals)}},
		"with another greeting":        {[]byte("GET / HTTP/1.1\r\n\r\n"), []int{memoryOf(t, size, sizeSeals)}},
	} {
		t.Run(what, func(t *testing.T) {
			d := openOne(t)
			c0 := dialRaw(t, d)
			if _, _, err := c0.WriteMsgUnix(c.text, unix.UnixRights(c.fds...), nil); err != nil {
				t.Fatal(err)
			}
			if err := c0.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			// The device says its own greeting, and then closes.
			if _, err := io.Copy(io.Discard, c0); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the connection stays: %v", err)
			}
			d.Close()
			if d.bytes != 0 || len(d.conns) != 0 {
				t.Errorf("%d bytes and %d connections are kept", d.bytes, len(d.conns))
			}
		})
	}
}

func TestTheOtherEndCantWriteThisOnesMemory(t *testing.T) {
	s, err := newSegment(controlBytes + MinRing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	fd := int(s.file.Fd())
	if _, err := unix.Mmap(fd, 0, MinRing, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("it can be mapped to be written")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Error("it can be written")
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("it can shrink")
	}
	o, err := adopt(fd, controlBytes+MinRing)
	if err != nil {
		t.Fatal(err)
	}
	o.release()
}

func TestScarceMemoryMakesRingsSmallAndThenNone(t *testing.T) {
	d, err := openDevice(Options{RingBytes: 4 * MinRing, MaxBytes: 32*MinRing + transport.ShownBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var rings []int
	for {
		ring, err := d.reserve()
		if err != nil {
			break
		}
		rings = append(rings, ring)
	}
	if d.bytes > d.options.MaxBytes || rings[0] != 4*MinRing || rings[len(rings)-1] != MinRing {
		t.Errorf("rings of %v, %d bytes", rings, d.bytes)
	}
}

func TestMemoryIsGivenBackWhenBothSidesAreDone(t *testing.T) {
	a, b := openOne(t), openOne(t)
	for range 100 { // far more than the limit holds at once
		near, err := a.Dial(t.Context(), b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		far, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := far.ReadFull(make([]byte, 1))
			done <- err
		}()
		near.Close()
		if err := <-done; err != io.EOF {
			t.Fatal(err)
		}
		far.Close()
	}
	a.Close()
	b.Close()
	if a.bytes != 0 || b.bytes != 0 {
		t.Errorf("%d and %d bytes are kept", a.bytes, b.bytes)
	}
}
