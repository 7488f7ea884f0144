package tcp

// AbortForTest closes the connection with a reset.
func (c *conn) AbortForTest() {
	c.tcp.SetLinger(0)
	c.Close()
}
