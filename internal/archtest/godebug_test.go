package archtest

import (
	"os/exec"
	"strings"
	"testing"
)

// TestProgramsRest: neither program looks once a second whether it may use other processors than when it began.
func TestProgramsRest(t *testing.T) {
	const want = "updatemaxprocs=0"
	for _, program := range []string{"skerry", "skerry-worker"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.DefaultGODEBUG}}", "./cmd/"+program)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s is built with GODEBUG=%q, %v; want %s", program, got, err, want)
		}
	}
}
