package link_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the package when a goroutine of ours outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	for i := 0; code == 0; i++ {
		b := make([]byte, 1<<20)
		b = b[:runtime.Stack(b, true)]
		var ours []string
		for _, g := range strings.Split(string(b), "\n\n") {
			if strings.Contains(g, "skerry/link.") || strings.Contains(g, "yamux") {
				ours = append(ours, g)
			}
		}
		if len(ours) == 0 {
			break
		}
		if i == 50 {
			fmt.Printf("%d goroutines leak:\n%s\n", len(ours), strings.Join(ours, "\n\n"))
			code = 1
		}
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(code)
}
