package railactors

import "github.com/polyrail/polyrail/messages"

// RemoteOf reads what a message says of a node. It is validated where it is connected.
func RemoteOf(m *messages.ViewMember) Remote {
	r := Remote{Node: m.GetNode(), Incarnation: m.GetIncarnation()}
	for _, rail := range m.GetRails() {
		r.Rails = append(r.Rails, RailAddress{Name: rail.GetName(), Addr: rail.GetAddr()})
	}
	return r
}

// RailsOf is what a message says of where a node listens.
func RailsOf(all []RailAddress) (rails []*messages.ViewRail) {
	for _, a := range all {
		rails = append(rails, &messages.ViewRail{Name: a.Name, Addr: a.Addr})
	}
	return rails
}
