package tcp

import "golang.org/x/sys/unix"

// bindToDevice makes a socket send and receive through one interface only.
func bindToDevice(fd int, name string) error { return unix.BindToDevice(fd, name) }
