// Package dirstore keeps the entries by which nodes find each other as files in a directory that
// all hosts mount.
//
// It owns one subdirectory per cluster, with a file per process. A file appears whole or not at
// all: it is written under another name and renamed. Its age is the difference of two modification
// times; the other one is that of this process's own file. So the clocks of hosts don't matter
// where the file server sets these times.
package dirstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/polyrail/polyrail/cluster"
)

const (
	suffix     = ".json" // of an entry
	tempPrefix = ".new-" // of a file that is being written
	maxFiles   = 4096    // of a cluster's directory that are looked at
	maxName    = 200     // bytes of a cluster's directory name; file systems allow 255
)

// Store is a directory.
type Store struct {
	dir string
	// busy holds a token while a call is at the file system. Such a call cannot be interrupted. On
	// a dead file server one call hangs, and the later ones wait for it as long as their contexts
	// allow.
	busy chan struct{}
	skew time.Duration // of the file system's clock against this host's; only with the token, as is …
	told bool          // … whether a file of this process has told of it
}

var _ cluster.Store = (*Store)(nil)

// New makes a store of an existing directory; nothing is read yet.
func New(dir string) *Store { return &Store{dir: dir, busy: make(chan struct{}, 1)} }

// String is the store's URL.
func (s *Store) String() string { return (&url.URL{Scheme: "dir", Path: s.dir}).String() }

// Put writes the entry under another name and renames it.
func (s *Store) Put(ctx context.Context, e cluster.Entry, ttl time.Duration) error {
	_, err := bounded(ctx, s, func() (struct{}, error) {
		// Not MkdirAll: where the directory itself is missing, the file system is not mounted.
		err := os.Mkdir(s.of(e.Cluster), 0o777)
		switch {
		case err == nil:
			err = s.open(e.Cluster)
		case errors.Is(err, fs.ErrExist):
			err = nil
		}
		if err != nil {
			return struct{}{}, s.missing(err)
		}
		return struct{}{}, s.write(e)
	})
	return err
}

// open lets all write to a cluster's new directory who can write to the one above it, whatever the
// process's umask says.
func (s *Store) open(name string) error {
	info, err := os.Stat(s.dir)
	if err != nil {
		return err
	}
	dir, err := s.enter(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Chmod(".", info.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
}

func (s *Store) write(e cluster.Entry) error {
	dir, err := s.enter(e.Cluster)
	if err != nil {
		return err
	}
	defer dir.Close()
	var random [8]byte
	rand.Read(random[:]) // never fails
	name := tempPrefix + hex.EncodeToString(random[:])
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(e.Encode())
	if err == nil {
		err = f.Chmod(0o644) // others are to read it, whoever they are
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		s.skew, s.told = time.Until(info.ModTime()), true
		err = dir.Rename(name, e.Process()+suffix)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(name))
	}
	return nil
}

// enter opens a cluster's directory. A link is none: whoever may write beside it could have files
// removed elsewhere.
func (s *Store) enter(name string) (*os.Root, error) {
	info, err := os.Lstat(s.of(name))
	if err != nil {
		return nil, s.missing(err)
	}
	switch info.Mode().Type() { // to open a pipe, or a link to one, would block
	case fs.ModeDir:
	case fs.ModeSymlink:
		return nil, fmt.Errorf("%s is a link", s.of(name))
	default:
		return nil, fmt.Errorf("%s is no directory", s.of(name))
	}
	dir, err := os.OpenRoot(s.of(name))
	if err != nil {
		return nil, err
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s is a link", s.of(name))
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// missing is the error of a directory of a cluster's: that of the directory above, where that is not
// there either.
func (s *Store) missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, above := os.Stat(s.dir); above != nil {
			return above
		}
	}
	return err
}

// List reads the files that are not too old, and removes those that are, as far as it is allowed
// to.
func (s *Store) List(ctx context.Context, name string, ttl time.Duration) ([][]byte, error) {
	return bounded(ctx, s, func() ([][]byte, error) {
		dir, err := s.enter(name)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		files, err := readDir(dir)
		if err != nil {
			return nil, err
		}
		now := time.Now().Add(s.skew)
		var entries []fs.FileInfo
		for _, f := range files {
			mine := strings.HasSuffix(f.Name(), suffix) || strings.HasPrefix(f.Name(), tempPrefix)
			age := now.Sub(f.ModTime())
			switch {
			case !mine || !f.Mode().IsRegular():
			case age > ttl, s.told && -age > ttl: // the latter: the file system's clock was set back since
				_ = dir.Remove(f.Name()) // its process renews it if it lives
			case strings.HasSuffix(f.Name(), suffix):
				entries = append(entries, f)
			}
		}
		slices.SortFunc(entries, func(a, b fs.FileInfo) int {
			return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
		})
		var values [][]byte
		for _, f := range entries[:min(len(entries), cluster.MaxEntries)] {
			// It may have been removed meanwhile.
			if value, err := read(dir, f.Name()); err == nil {
				values = append(values, value)
			}
		}
		return values, nil
	})
}

// Remove deletes the file.
func (s *Store) Remove(ctx context.Context, e cluster.Entry) error {
	_, err := bounded(ctx, s, func() (struct{}, error) {
		dir, err := s.enter(e.Cluster)
		if err == nil {
			defer dir.Close()
			err = dir.Remove(e.Process() + suffix)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// of is the cluster's directory. Cluster names may be long, and hold anything.
func (s *Store) of(name string) string {
	base := "cluster-" + url.PathEscape(name)
	if len(base) > maxName {
		sum := sha256.Sum256([]byte(name))
		base = base[:maxName-65] + "~" + hex.EncodeToString(sum[:])
	}
	return filepath.Join(s.dir, base)
}

// bounded runs f, and leaves it behind when the context ends first.
func bounded[T any](ctx context.Context, s *Store, f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("an earlier call still waits for the file system: %w", context.Cause(ctx))
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-s.busy }()
		value, err := f()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, fmt.Errorf("the file system does not answer: %w", context.Cause(ctx))
	}
}

// readDir describes at most maxFiles files. A file that vanishes meanwhile is left out.
func readDir(dir *os.Root) ([]fs.FileInfo, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	found, err := d.ReadDir(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	files := make([]fs.FileInfo, 0, len(found))
	for _, f := range found {
		if info, err := f.Info(); err == nil {
			files = append(files, info)
		}
	}
	return files, nil
}

// read reads a file of no more than an entry's size. Opening does not block should the file have
// become a pipe since it was looked at.
func read(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > cluster.MaxEntryBytes {
		return nil, fmt.Errorf("%s is no entry", name)
	}
	return io.ReadAll(io.LimitReader(f, cluster.MaxEntryBytes))
}
