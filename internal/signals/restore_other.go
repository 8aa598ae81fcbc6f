//go:build !linux

package signals

import "syscall"

func restore(syscall.Signal) {}
