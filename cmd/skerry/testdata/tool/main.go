// Command tool is a program for images in tests: it prints, waits or ends as it is told.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	args := os.Args[1:]
	for len(args) > 0 {
		switch args[0] {
		case "echo":
			fmt.Println(args[1])
			args = args[2:]
		case "warn":
			fmt.Fprintln(os.Stderr, args[1])
			args = args[2:]
		case "cat":
			io.Copy(os.Stdout, os.Stdin)
			args = args[1:]
		case "env":
			fmt.Println(os.Getenv(args[1]))
			args = args[2:]
		case "exit":
			n, _ := strconv.Atoi(args[1])
			os.Exit(n)
		case "terminal":
			terminal()
			args = args[1:]
		case "wait":
			ch := make(chan os.Signal, 1)
			signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
			<-ch
			return
		default:
			fmt.Fprintln(os.Stderr, "what is", args[0])
			os.Exit(64)
		}
	}
}
