package membership

import (
	"testing"
	"testing/synctest"

	"github.com/polyrail/polyrail/actors/communicator"
	"github.com/polyrail/polyrail/collective/view"
	"github.com/polyrail/polyrail/railactors"
)

// A view names later processes of nodes that are known here, and not connected. One attempt is to find
// out that all the former ones are gone.
func TestOneViewFindsAllFormerProcessesGone(t *testing.T) {
	besideASilentRank(t, func(t *testing.T, n *node, _ *communicator.Communicator, _ *railactors.Peer) {
		v := &view.View{Name: "next", ID: 99, Members: []view.Member{{Node: "a", Incarnation: 1}}}
		var former []*railactors.Peer
		synctest.Wait() // the fabric's actors open what is there when they start
		for _, name := range []string{"c", "d", "e"} {
			m := view.Member{Node: name, Incarnation: 1, Rails: []view.Rail{{Name: "rail0", Addr: "nobody"}}}
			p, err := n.fabric.Introduce(remoteOf(&m, &v.Members[0]))
			if err != nil {
				t.Fatal(err)
			}
			former = append(former, p)
			m.Incarnation = 2
			v.Members = append(v.Members, m)
		}
		a := &nodeActor{node: n, forming: make(map[uint64]*forming)}
		a.register(v)
		f := a.forming[v.ID]
		a.connect(f, nil)
		synctest.Wait()
		for _, p := range former {
			if p.Lost() == nil {
				t.Errorf("the former process of node %s was not looked for", p.Node())
			}
		}
		f.drop()
		n.Unregister(f.group)
	})
}
