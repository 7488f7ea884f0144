package keys

import (
	"encoding/base64"
	"fmt"
	"strings"
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
	var all [][]byte
	for line := range strings.FieldsSeq(string(b)) {
		k, err := base64.StdEncoding.DecodeString(line)
		if n := len(k); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("%w: %s: a key is base64 of 16, 24 or 32 bytes", ErrKeys, file)
		}
		all = append(all, k)
	}
	if len(all) == 0 || len(all) > maxGossipKeys {
		return nil, fmt.Errorf("%w: %s has %d keys, want 1 to %d", ErrKeys, file, len(all), maxGossipKeys)
	}
	return all, nil
}
