package transporttest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// The tests in this file are about ends: of connections, of devices, of dials.

func testCloseUnblocks(t *testing.T, x *bed) {
	near, _ := x.connect(t)
	read, wrote := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := near.ReadFull(make([]byte, 1<<20))
		read <- err
	}()
	data := pattern(unreadable)
	fill(t, near, data)
	check(t, near.SetWriteDeadline(time.Time{}))
	go func() {
		_, err := near.Write(data)
		wrote <- err
	}()
	for range 3 {
		check(t, near.Close())
	}
	for what, ch := range map[string]chan error{"reader": read, "writer": wrote} {
		if err := <-ch; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the %s got %v, want net.ErrClosed", what, err)
		}
	}
	if _, err := near.TryWrite([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("TryWrite after Close: %v", err)
	}
}

func testCloseDelivers(t *testing.T, x *bed) {
	near, far := x.connect(t)
	data := pattern(50000)
	done := make(chan error, 1)
	go func() {
		_, err := near.Write(data)
		done <- errors.Join(err, near.Close())
	}()
	equal(t, readN(t, far, len(data)), data)
	check(t, <-done)
	if n, err := far.ReadFull(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

func testUnexpectedEOF(t *testing.T, x *bed) {
	near, far := x.connect(t)
	if _, err := near.Write(pattern(300)); err != nil {
		t.Fatal(err)
	}
	check(t, near.Close())
	for _, size := range []int{200, 200} {
		n, err := far.ReadFull(make([]byte, size))
		if n == 100 && err != io.ErrUnexpectedEOF || n == 200 && err != nil || n != 100 && n != 200 {
			t.Errorf("read %d of %d bytes: %v", n, size, err)
		}
	}
}

func testPeerGone(t *testing.T, x *bed) {
	near, far := x.connect(t)
	check(t, far.Close())
	data := pattern(unreadable)
	for range 10 { // what fits into buffers goes before the answer of the peer is here
		if _, err := near.Write(data); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want to hear that the peer is gone", err)
			}
			return
		}
	}
	t.Error("the writer never heard")
}

func testAddresses(t *testing.T, x *bed) {
	near, far := x.connect(t)
	for _, c := range []struct {
		what, got, device string
	}{
		{"the dialing end", near.LocalAddr().String(), x.a.Addr()},
		{"its peer's view of it", far.RemoteAddr().String(), x.a.Addr()},
		{"the accepting end", far.LocalAddr().String(), x.b.Addr()},
	} {
		if host(c.got) != host(c.device) {
			t.Errorf("%s has the address %s, its device %s", c.what, c.got, c.device)
		}
	}
	if got := near.RemoteAddr().String(); got != x.b.Addr() {
		t.Errorf("connected to %s, dialed %s", got, x.b.Addr())
	}
	if !strings.Contains(x.a.Chosen(), strings.Trim(host(x.a.Addr()), "[]")) {
		t.Errorf("the device says it chose %q, its address is %s", x.a.Chosen(), x.a.Addr())
	}
}

// host is an address without what tells apart the sockets of one device.
func host(addr string) string {
	return addr[:strings.LastIndexAny(addr, ":#")]
}

func testDeviceClose(t *testing.T, x *bed) {
	near, far := x.connect(t)
	done := make(chan error, 1)
	go func() {
		_, err := x.b.Accept()
		done <- err
	}()
	check(t, x.b.Close())
	check(t, x.b.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := x.b.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if c, err := x.a.Dial(t.Context(), x.b.Addr()); err == nil {
		c.Close()
		t.Error("dialed a closed device")
	}
	if c, err := x.b.Dial(t.Context(), x.a.Addr()); !errors.Is(err, net.ErrClosed) {
		if err == nil {
			c.Close()
		}
		t.Errorf("dialed from a closed device: %v", err)
	}
	// Connections outlive the device that they were made on.
	if _, err := near.Write([]byte("still here")); err != nil {
		t.Error(err)
	}
	equal(t, readN(t, far, 10), []byte("still here"))
}

func testDialContext(t *testing.T, x *bed) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := x.a.Dial(ctx, x.b.Addr()); !errors.Is(err, context.Canceled) {
		if err == nil {
			c.Close()
		}
		t.Errorf("got %v", err)
	}
}

func testRefused(t *testing.T, x *bed) {
	addr := x.b.Addr()
	check(t, x.b.Close())
	_, err := x.a.Dial(t.Context(), addr)
	if err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v, want an error that names %s", err, addr)
	}
}
