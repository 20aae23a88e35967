package realvault

import "syscall"

// A test that is killed leaves no Vault behind.
var dieWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
