// Work is the program of a profile for tests: of skerry no more than its work.
package main

import (
	"os"

	"skerry.dev/skerry/internal/profile"
)

func main() { os.Exit(profile.WorkMain(os.Args[2:])) }
