package balancing

import (
	"time"

	"github.com/polyrail/polyrail/collective/balance"
	"github.com/polyrail/polyrail/collective/table"
	"github.com/polyrail/polyrail/messages"
)

func windowsMessage(set []balance.Window) *messages.Control {
	m := &messages.Windows{}
	for _, w := range set {
		m.Windows = append(m.Windows, &messages.Window{Family: uint32(w.Family),
			Rail: uint32(w.Rail), SizeClass: uint32(w.Class), Split: w.Split,
			Operations: uint32(w.Operations), Bytes: w.Bytes, ElapsedNs: int64(w.Elapsed),
			WholeNs: int64(w.Whole)})
	}
	return &messages.Control{Body: &messages.Control_Windows{Windows: m}}
}

// windowsOf translates what came from the network; the core validates it.
func windowsOf(m *messages.Windows) (set []balance.Window) {
	for _, w := range m.GetWindows() {
		set = append(set, balance.Window{Family: table.Family(min(w.GetFamily(),
			uint32(table.Families))), Rail: int(w.GetRail()),
			Class: balance.Class(min(w.GetSizeClass(), balance.Classes)), Split: w.GetSplit(),
			Operations: int(w.GetOperations()), Bytes: w.GetBytes(),
			Elapsed: time.Duration(w.GetElapsedNs()), Whole: time.Duration(w.GetWholeNs())})
	}
	return set
}
