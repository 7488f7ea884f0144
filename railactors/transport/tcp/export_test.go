package tcp

import "syscall"

// AbortForTest closes the connection with a reset.
func (c *conn) AbortForTest() {
	c.tcp.SetLinger(0)
	c.Close()
}

// Raw is a connection's descriptor.
func Raw(c any) syscall.RawConn { return c.(*conn).raw }

// SplitPort is splitPort.
var SplitPort = splitPort
