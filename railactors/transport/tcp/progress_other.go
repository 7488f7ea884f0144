//go:build !linux

package tcp

import "github.com/polyrail/polyrail/railactors/transport"

// Progress can't tell: elsewhere silent rails are found by heartbeats.
func (c *conn) Progress() (transport.Progress, bool) { return transport.Progress{}, false }
