package keys

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/polyrail/polyrail/railactors/disk"
)

// maxGossipKeys bounds the keys of gossip: each packet may have to be tried with all.
const maxGossipKeys = 8

// Gossip reads a file of gossip's keys: base64, one a line, of 16, 24 or 32 bytes. The first one
// seals; all of them open.
func Gossip(file string) ([][]byte, error) {
	b, err := readFile(file)
	if err != nil {
		return nil, err
	}
	all, err := parseGossip(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeys, file, err)
	}
	return all, nil
}

// FollowGossip returns what reads the file again at each call, of which there is one at a time.
func FollowGossip(file string) func() ([][]byte, error) {
	var calls disk.Calls
	return func() ([][]byte, error) {
		var all [][]byte // a read that was left behind writes it later
		err := calls.Do(func() (err error) { all, err = Gossip(file); return err })
		if err != nil {
			return nil, unread(err)
		}
		return all, nil
	}
}

// unread is why keys could not be read.
func unread(err error) error {
	if errors.Is(err, ErrKeys) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrKeys, err)
}

func parseGossip(text []byte) (all [][]byte, err error) {
	for line := range strings.FieldsSeq(string(text)) {
		k, err := base64.StdEncoding.DecodeString(line)
		if n := len(k); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, errors.New("a key is base64 of 16, 24 or 32 bytes")
		}
		all = append(all, k)
	}
	if len(all) == 0 || len(all) > maxGossipKeys {
		return nil, fmt.Errorf("%d keys, want 1 to %d", len(all), maxGossipKeys)
	}
	return all, nil
}
