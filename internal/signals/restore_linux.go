package signals

import (
	"syscall"
	"unsafe"
)

// restore gives a signal that Go does not manage its usual effect. A failure leaves it ignored.
func restore(s syscall.Signal) { setAction(s, 0) }

// setAction sets what a signal does, 0 for the usual (SIG_DFL) and 1 for nothing (SIG_IGN): the first word of the kernel's sigaction, whose
// others are its flags, restorer and mask, which takes two of 32 bits.
func setAction(s syscall.Signal, handler uintptr) {
	action := [5]uintptr{handler}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}
