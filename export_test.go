package polyrail

import (
	"github.com/polyrail/polyrail/actors/engine"
	"github.com/polyrail/polyrail/messages"
)

// What tests of this package see of it besides the public API.

// Transfers are those of the communicator's engine.
func (c *Communicator) Transfers() *engine.Transfers { return c.inner.Transfers() }

// Elements is b as elements, which it must hold in whole numbers.
func Elements[T Element](b []byte) []T { return elements[T](b) }

// Announced is what operations have announced to the peers and not sent, in bytes.
func (c *Communicator) Announced(rails int) (bytes int) {
	for _, p := range c.inner.Group.Peers {
		for rail := 0; p != nil && rail < rails; rail++ {
			bytes += max(p.Expected(rail), -p.Expected(rail))
		}
	}
	return bytes
}

// Flood queues control messages for a rank, which it ignores, until no more may wait.
func (c *Communicator) Flood(rank int) (err error) {
	for err == nil {
		err = c.inner.Group.Peers[rank].SendControl(&messages.Control{Comm: 1,
			Body: &messages.Control_Ready{Ready: &messages.Ready{}}})
	}
	return err
}

// Expanded is the configuration with a rail for each interface that "auto" stands for.
func (c Config) Expanded() (Config, error) { return c.expand() }
