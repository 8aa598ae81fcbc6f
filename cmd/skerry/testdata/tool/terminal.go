package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// terminal tells the size of its terminal, now and when it changes, interrupts, and the lines it is given. The line
// "exit N" ends it.
func terminal() {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGWINCH, os.Interrupt)
	lines := make(chan string)
	go func() {
		for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
			lines <- sc.Text()
		}
		close(lines)
	}()
	fmt.Println("term", os.Getenv("TERM"))
	size()
	for {
		select {
		case s := <-ch:
			if s == os.Interrupt {
				fmt.Println("interrupted")
			} else {
				size()
			}
		case l, ok := <-lines:
			if !ok {
				fmt.Println("end of input")
				return
			}
			if code, ok := strings.CutPrefix(l, "exit "); ok {
				n, _ := strconv.Atoi(code)
				os.Exit(n)
			}
			fmt.Printf("got %q\n", l)
		}
	}
}

func size() {
	var w struct{ Rows, Cols, X, Y uint16 }
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&w))); errno != 0 {
		fmt.Println("no terminal:", errno)
		return
	}
	fmt.Println("size", w.Rows, w.Cols)
}
