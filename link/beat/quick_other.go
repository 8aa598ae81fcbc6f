//go:build !linux

package beat

import (
	"errors"
	"syscall"
	"time"
)

func quickly(syscall.RawConn, []byte, []byte, time.Duration) (int, error) {
	return 0, errors.ErrUnsupported
}

const quickRTT = 0
