// Greet answers one request, given and answered as CGI has it. It is meant to be built as a WebAssembly module:
//
//	GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags '-s -w' -o bin/greet ./examples/greet
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := answer(os.Getenv, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(env func(string) string, in io.Reader, out io.Writer) error {
	name := strings.Trim(env("PATH_INFO"), "/")
	if env("REQUEST_METHOD") == "POST" {
		body, err := io.ReadAll(io.LimitReader(in, 100))
		if err != nil {
			return err
		}
		name = strings.TrimSpace(string(body))
	}
	if name == "" {
		name = "whoever you are"
	}
	greeting := env("GREETING")
	if file := env("GREETING_FILE"); file != "" { // such as one of a secret
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		greeting = strings.TrimSpace(string(text))
	}
	if greeting == "" {
		greeting = "Ahoy"
	}
	_, err := fmt.Fprintf(out, "Content-Type: text/plain; charset=utf-8\n\n%s, %s! Instance %s on worker %s.\n", greeting, name, env("SKERRY_INSTANCE"), env("SKERRY_WORKER"))
	return err
}
