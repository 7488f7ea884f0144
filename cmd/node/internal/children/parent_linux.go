package children

import "syscall"

// dieWithParent has the kernel end the child if this process is killed and cannot.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
