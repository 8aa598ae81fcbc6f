//go:build linux && !amd64 && !arm64 && !riscv64

package vm

const guestInit = ""
