package membership

import (
	"slices"

	"github.com/polyrail/polyrail/collective/view"
)

// host is where this node runs.
func (n *node) host() view.Host {
	return view.Host{Name: n.config.Host, Memory: n.fabric.MemoryAddr()}
}

// addresses are where other nodes reach this one, by rail.
func (n *node) addresses() (rails []view.Rail) {
	for _, r := range n.fabric.Rails() {
		rails = append(rails, view.Rail{Name: r.Name, Addr: r.Addr})
	}
	return rails
}

// reached are the addresses of the rails, in the order of the configuration.
func (n *node) reached() (addrs []string) {
	rails := n.fabric.Rails() // by name
	for _, r := range n.config.Rails.Rails {
		addrs = append(addrs, rails[n.fabric.RailIndex(r.Name)].Addr)
	}
	return addrs
}

// moved tells the core of rails whose devices have come since.
func (a *nodeActor) moved() {
	if rails := a.node.addresses(); !slices.Equal(rails, a.rails) {
		a.rails = rails
		a.step(view.Moved{Rails: rails})
	}
}
