package counterparts

import "syscall"

// A test that is killed leaves no program behind.
var dieWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
