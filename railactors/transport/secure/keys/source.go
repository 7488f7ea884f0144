package keys

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/polyrail/polyrail/railactors/disk"
)

// A certificate that ends within expiresSoon is warned of, once a warnEach.
const (
	expiresSoon = 14 * 24 * time.Hour
	warnEach    = 24 * time.Hour
)

// Source has a node's credentials from files and follows the files: who replaces them changes the
// keys of a running node. While what they hold is no credentials of this node, as halfway through a
// replacement, or can't be read, the last ones stay in use.
type Source struct {
	files Files
	node  Identity
	log   *slog.Logger
	disk  disk.Calls

	mu    sync.Mutex
	seen  [3][]byte // the files' content when they were looked at last
	last  *Credentials
	fault string    // the last one that was logged
	warn  time.Time // when to warn of the certificate's end
}

// NewSource reads the files. The error says why they are no credentials of the node.
func NewSource(files Files, node Identity, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, node: node, log: log}
	if err := node.Valid(); err != nil {
		return nil, err
	}
	if err := s.look(); err != nil {
		return nil, err
	}
	s.watch(time.Now())
	return s, nil
}

// Current reads the files again and returns the credentials in force.
func (s *Source) Current() *Credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if err := s.look(); err != nil {
		text = err.Error()
	}
	if text != "" && text != s.fault {
		s.log.Warn("new keys can't be used, the last ones stay in use", "error", text)
	}
	s.fault = text
	s.watch(time.Now())
	return s.last
}

// watch warns in time of the end of the certificate in use.
func (s *Source) watch(now time.Time) {
	if until := s.last.Until(); !now.Before(s.warn) && until.Sub(now) < expiresSoon {
		s.warn = now.Add(warnEach)
		s.log.Warn("the certificate ends soon: no node connects to this one after that",
			"certificate", s.files.Cert, "until", until)
	}
}

// look takes what the files hold, if that is different from what they held and in order.
func (s *Source) look() error {
	var b [3][]byte
	err := s.disk.Do(func() (err error) { b, err = s.files.read(); return err })
	if err != nil {
		return unread(err)
	}
	if s.last != nil && bytes.Equal(b[0], s.seen[0]) && bytes.Equal(b[1], s.seen[1]) && bytes.Equal(b[2], s.seen[2]) {
		return nil
	}
	c, err := s.files.parse(b)
	if err != nil {
		return err
	}
	if c.Identity != s.node {
		return fmt.Errorf("%w: %s is of %s, this node is %s", ErrKeys, s.files.Cert, c.Identity, s.node)
	}
	if s.last != nil {
		s.log.Info("keys were replaced", "certificate", s.files.Cert, "until", c.Until())
	}
	s.seen, s.last = b, c
	return nil
}
