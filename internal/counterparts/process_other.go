//go:build !linux

package counterparts

import "syscall"

var dieWithParent = &syscall.SysProcAttr{}
