package shm

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// segment is memory of one end: a page of control and a ring, or what it shows.
type segment struct {
	memory []byte
	file   *os.File // until the other end has it
}

// seals keep the memory from changing its size, which would be a SIGBUS for whoever reads it, and
// the other end from writing it.
const (
	sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	allSeals  = sizeSeals | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
)

// newSegment makes so many bytes of memory of this end's own.
func newSegment(size int) (_ *segment, err error) {
	fd, err := unix.MemfdCreate("polyrail", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	s := &segment{file: os.NewFile(uintptr(fd), "memfd")}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	// Allocated at once: where memory is short this is an error here, and not a signal later.
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	if s.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, allSeals); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return s, nil
}

// adopt maps so many bytes of another process, read-only, if they can't shrink and are all there.
func adopt(fd, size int) (*segment, error) {
	var stat unix.Stat_t
	var system unix.Statfs_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	if err == nil {
		err = unix.Fstatfs(fd, &system)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the other end's memory: %w", err)
	case seals&sizeSeals != sizeSeals || system.Type != unix.TMPFS_MAGIC:
		return nil, fmt.Errorf("the other end's memory is not sealed")
	case stat.Size != int64(size) || stat.Blocks*512 < int64(size):
		return nil, fmt.Errorf("the other end's memory has %d bytes, %d blocks; want %d bytes", stat.Size, stat.Blocks, size)
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the other end's memory: %w", err)
	}
	return &segment{memory: memory}, nil
}

func (s *segment) control() *control { return (*control)(unsafe.Pointer(&s.memory[0])) }
func (s *segment) ring() []byte      { return s.memory[controlBytes:] }

// release unmaps the memory, which nobody uses any more.
func (s *segment) release() {
	if s.file != nil {
		s.file.Close()
	}
	s.file = nil
	s.unmap()
}

// unmap is release without the file.
func (s *segment) unmap() {
	if s.memory != nil {
		// It fails only for what is no mapping.
		_ = unix.Munmap(s.memory)
	}
	s.memory = nil
}
