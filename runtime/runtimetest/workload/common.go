package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// common runs the commands that need nothing of the machine but files.
func common(cmd string, args []string) bool {
	switch cmd {
	case "print":
		for _, a := range args {
			fmt.Println(a)
		}
	case "err":
		fmt.Fprintln(os.Stderr, args[0])
	case "exit":
		os.Exit(number(args))
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "cwd":
		dir, err := os.Getwd()
		check(err)
		fmt.Println(dir)
	case "alloc":
		b := bytes.Repeat([]byte{1}, number(args)<<20)
		fmt.Println("allocated", len(b))
	case "spam":
		for i := range number(args) {
			fmt.Printf("line %07d of noise\n", i)
		}
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		check(err)
	case "read":
		b, err := os.ReadFile(args[0])
		check(err)
		os.Stdout.Write(b)
	case "digest": // of a file whose content is not to be seen
		b, err := os.ReadFile(args[0])
		check(err)
		fmt.Printf("%x\n", sha256.Sum256(b))
	case "write":
		check(os.WriteFile(args[0], []byte(args[1]), 0o644))
		fmt.Println("written")
	case "fill": // write so many MiB into a file
		f, err := os.Create(args[0])
		check(err)
		for range number(args[1:]) {
			_, err := f.Write(make([]byte, 1<<20))
			check(err)
		}
		check(f.Close())
		fmt.Println("filled")
	default:
		return false
	}
	return true
}

func number(args []string) int {
	n, err := strconv.Atoi(args[0])
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(msg string) {
	fmt.Fprintln(os.Stderr, msg)
	os.Exit(90)
}
