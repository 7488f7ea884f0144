// Package tuning keeps what balancers have learned of their rails in a file, for the next
// process (the tuning file).
//
// It owns the file's form and the file itself. What is learned, and what becomes of it, is
// collective/balance's; actors reads an entry when a communicator forms and writes one when it
// closes, on rank 0 alone.
package tuning

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/railactors/disk"
)

// Store is a tuning file in use. It is safe for concurrent use.
type Store struct {
	file string
	disk disk.Calls

	mu      sync.Mutex
	broken  error // what stands there can't be used, and isn't overwritten
	tunings []Tuning
	missed  []Key // bounded like tunings
}

// Open reads the file; one that doesn't exist is empty. With an error, which names the file, the Store
// knows nothing and Put writes nothing: the file may be something else's, or a later version's.
func Open(file string) (*Store, error) {
	s := &Store{file: file}
	s.tunings, s.broken = read(file)
	return s, s.broken
}

// File is the file's name.
func (s *Store) File() string { return s.file }

// Get is what the file, and later Puts, say for a key. first: it is the first time that there is
// nothing for this key, though the file has something for others.
func (s *Store) Get(k Key) (saved balance.Saved, found, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tunings {
		if same(s.tunings[i].Key, k) {
			return s.tunings[i].Saved, true, false
		}
	}
	if len(s.tunings) == 0 || slices.ContainsFunc(s.missed, func(m Key) bool { return same(m, k) }) {
		return saved, false, false
	}
	s.missed = append(s.missed[max(0, len(s.missed)-MaxTunings+1):], k)
	return saved, false, true
}

// Keys are those that there is something for.
func (s *Store) Keys() (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tunings {
		keys = append(keys, s.tunings[i].Key)
	}
	return keys
}

// Put replaces a key's entry, here and in the file. What another process has written about
// other keys since Open is kept. What could not be read again is refused: it would take the whole file
// with it. Timings come from other ranks, which may say anything.
func (s *Store) Put(k Key, saved balance.Saved, at time.Time) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := saved.Validate(len(k.Rails)); err != nil {
		return fmt.Errorf("tuning file %s: what was learned is impossible: %w", s.file, err)
	}
	return s.patiently(func() error { return s.put(k, saved, at) })
}

func (s *Store) put(k Key, saved balance.Saved, at time.Time) error {
	tunings, err := read(s.file)
	if err != nil {
		return err
	}
	tunings = slices.DeleteFunc(tunings, func(t Tuning) bool { return same(t.Key, k) })
	tunings = append(tunings, Tuning{Key: k, At: at, Saved: saved})
	text, err := Encode(tunings)
	if err == nil {
		err = replace(s.file, text)
	}
	if err != nil {
		return fmt.Errorf("tuning file %s: %w", s.file, err)
	}
	s.mu.Lock()
	s.tunings = tunings
	s.mu.Unlock()
	return nil
}

// patiently calls what uses the file.
func (s *Store) patiently(f func() error) error {
	err := s.disk.Do(f)
	if errors.Is(err, disk.ErrSilent) {
		err = fmt.Errorf("tuning file %s: %w", s.file, err)
	}
	return err
}

// Check is why Put would write nothing, or nil.
func (s *Store) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Writable is why Put could write nothing now, or nil. It leaves the file as it is.
func (s *Store) Writable() error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.patiently(func() error {
		f, _, err := beside(s.file)
		if err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
		if err != nil {
			return fmt.Errorf("tuning file %s: %w", s.file, err)
		}
		return nil
	})
}

// same ignores nothing: rails are ordered by name on every node.
func same(a, b Key) bool { return a.Ranks == b.Ranks && slices.Equal(a.Rails, b.Rails) }

func read(file string) ([]Tuning, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tuning file: %w", err) // names it
	}
	if !info.Mode().IsRegular() { // opening a pipe could take for ever
		return nil, fmt.Errorf("tuning file %s: is no file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("tuning file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("tuning file: %w", err)
	}
	tunings, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("tuning file %s: %w", file, err)
	}
	return tunings, nil
}

// replace puts text in the file's place: whoever reads it sees the old text or the new one, also
// after a crash. Who may read the file stays as it was.
func replace(file string, text []byte) error {
	f, file, err := beside(file)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// beside makes a new file where the text of file is, which is returned too: a link stays one.
func beside(file string) (f *os.File, target string, err error) {
	if linked, err := filepath.EvalSymlinks(file); err == nil {
		file = linked
	}
	f, err = os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	return f, file, err
}
