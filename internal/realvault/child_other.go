//go:build !linux

package realvault

import "syscall"

var dieWithParent = &syscall.SysProcAttr{}
