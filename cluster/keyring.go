package cluster

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// keyInterval is the pause between two looks at gossip's keys.
const keyInterval = time.Second

var errNoKeys = errors.New("there is no key of gossip")

// newKeyring has the keys in force; nil without keys.
func (c *Config) newKeyring() (*memberlist.Keyring, error) {
	if c.Keys == nil {
		return nil, nil
	}
	keys, err := c.Keys()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// followKeys installs what Config.Keys says from now on, until gossip ends.
func (g *Gossip) followKeys(ring *memberlist.Keyring) {
	tick := time.NewTicker(keyInterval)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
		keys, err := g.cfg.Keys()
		changed := false
		if err == nil {
			changed, err = install(ring, keys)
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != said {
			g.log.Warn("new keys of gossip can't be used, the last ones stay in use", "error", text)
		}
		if said = text; changed {
			g.log.Info("keys of gossip were replaced", "keys", len(ring.GetKeys()))
		}
	}
}

// install makes keys those of the ring, and the first one that which seals. It reports whether the
// ring had others. A key that is there twice counts once.
func install(ring *memberlist.Keyring, keys [][]byte) (changed bool, err error) {
	if len(keys) == 0 {
		return false, errNoKeys
	}
	has := func(keys [][]byte, k []byte) bool {
		return slices.ContainsFunc(keys, func(other []byte) bool { return bytes.Equal(k, other) })
	}
	before := ring.GetKeys()
	for _, k := range keys {
		changed = changed || !has(before, k)
		if err := ring.AddKey(k); err != nil {
			return changed, err
		}
	}
	drop := slices.DeleteFunc(slices.Clone(before), func(k []byte) bool { return has(keys, k) })
	if len(drop) == 0 {
		changed = changed || !bytes.Equal(keys[0], before[0])
		return changed, ring.UseKey(keys[0])
	}
	// RemoveKey moves the keys behind the one that goes, in memory that others read without a lock. So
	// those that go must be the last.
	for _, k := range slices.Backward(keys) {
		if err := ring.UseKey(k); err != nil {
			return changed, err
		}
	}
	for _, k := range slices.Backward(ring.GetKeys()) {
		if has(keys, k) {
			break // and so are those before
		}
		if err := ring.RemoveKey(k); err != nil {
			return changed, err
		}
	}
	return true, nil
}
