package profile

import (
	"errors"
	"fmt"
	"os"

	pb "github.com/google/pprof/profile"
)

// File keeps profiles, to be one for go tool pprof. A nil File keeps nothing.
type File struct {
	w    *os.File
	kept []*pb.Profile // one for each size that was measured
}

// Create makes the file at once, so that a long measurement isn't in vain.
func Create(name string) (*File, error) {
	w, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return &File{w: w}, nil
}

func (f *File) add(p *pb.Profile) {
	if f != nil {
		f.kept = append(f.kept, p)
	}
}

// Close writes what was kept.
func (f *File) Close() error {
	err := f.write()
	if err = errors.Join(err, f.w.Close()); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	return nil
}

func (f *File) write() error {
	if len(f.kept) == 0 {
		return nil
	}
	all, err := pb.Merge(f.kept)
	if err != nil {
		return err
	}
	return all.Write(f.w)
}
