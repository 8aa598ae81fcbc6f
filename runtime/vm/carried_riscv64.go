//go:build linux

package vm

import _ "embed"

// guestInit is the compressed program of package guestinit.
//
//go:embed guestinit_riscv64.gz
var guestInit string
