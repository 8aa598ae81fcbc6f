//go:build linux

// Firstline is the workload of the start-up benchmarks: it says when it began and then does nothing.
package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	fmt.Println(ts.Nano())
	time.Sleep(24 * time.Hour)
}
