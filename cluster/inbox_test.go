package cluster

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/cluster/memnet"
	"github.com/polyrail/polyrail/test/bubble"
)

func TestMessagesThatWaitAreBoundedByBytes(t *testing.T) {
	b, long := newInbox(), make([]byte, maxMessageBytes)
	for range 2 {
		fit := 0
		for b.put(long) {
			fit++
		}
		if fit != maxInboxBytes/maxMessageBytes || len(b.take()) != fit {
			t.Errorf("%d messages of %d bytes fit", fit, maxMessageBytes)
		}
	}
}

// hanging checks signatures when it is let go.
type hanging struct{ let chan struct{} }

func (h hanging) Sign([]byte) ([]byte, [][]byte, error) { return nil, nil, errors.New("no keys") }
func (h hanging) Check(_, _ []byte, _ [][]byte) (string, error) {
	<-h.let
	return "", errors.New("no keys")
}

// memberlist calls under its own locks, and of many streams at once.
func TestAMessageIsReadOffMemberlistsGoroutine(t *testing.T) {
	bubble.Nodes(t, func(t *testing.T) {
		c := config(memnet.New(), "n1", 7, seed)
		h := hanging{make(chan struct{})}
		c.Signer, c.Logger = h, slog.New(slog.DiscardHandler)
		p := start(t, c)
		for range 3 {
			(&delegate{g: p.Gossip}).NotifyMsg([]byte{1<<3 | 2, 0, 2<<3 | 2, 1, 0}) // a Signed
		}
		close(h.let)
		synctest.Wait()
		if n := p.Stats().Undecodable; n != 3 {
			t.Errorf("%d messages were turned down", n)
		}
		closeAll(t, p)
	})
}
