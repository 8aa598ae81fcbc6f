// Kit is a handful of small programs in one, for the examples: something to run to its end, to serve files, to write them.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const usage = `usage:
  kit primes N           count the primes below N
  kit hello              say who runs where
  kit write FILE TEXT    write a file
  kit clock FILE         write the time into a file every second
  kit serve ADDR DIR     serve the files of a directory over HTTP`

func run(args []string, out io.Writer) error {
	bad := errors.New(usage)
	if len(args) == 0 {
		return bad
	}
	switch {
	case args[0] == "primes" && len(args) == 2:
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 0 || n > 100_000_000 {
			return fmt.Errorf("primes: %q is not a number from 0 to 100000000", args[1])
		}
		fmt.Fprintf(out, "there are %d primes below %d\n", primes(n), n)
	case args[0] == "hello" && len(args) == 1:
		fmt.Fprintf(out, "%s: instance %s on worker %s\n", time.Now().UTC().Format(time.RFC3339), os.Getenv("SKERRY_INSTANCE"), os.Getenv("SKERRY_WORKER"))
	case args[0] == "write" && len(args) == 3:
		return replace(args[1], args[2]+"\n")
	case args[0] == "clock" && len(args) == 2:
		for ; ; time.Sleep(time.Second) {
			if err := replace(args[1], time.Now().UTC().Format(time.RFC3339)+"\n"); err != nil {
				return err
			}
		}
	case args[0] == "serve" && len(args) == 3:
		log.Printf("serving %s on %s", args[2], args[1])
		return http.ListenAndServe(args[1], http.FileServer(http.Dir(args[2])))
	default:
		return bad
	}
	return nil
}

// primes counts with a sieve.
func primes(n int) (count int) {
	composite := make([]bool, max(n, 2))
	for i := 2; i < n; i++ {
		if composite[i] {
			continue
		}
		count++
		for j := i * i; j < n; j += i {
			composite[j] = true
		}
	}
	return count
}

// replace writes a file so that readers see the old or the new one.
func replace(file, text string) error {
	tmp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
