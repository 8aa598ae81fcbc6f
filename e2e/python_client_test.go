//go:build linux

package e2e

import (
	"crypto/tls"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/parents"
)

// TestPythonClient makes a client in Python of the API's document, as docs/API.md says, and has it work with a root.
func TestPythonClient(t *testing.T) {
	python := pythonOf(t, "pythonclient", "testdata/pythonclient/requirements.txt")
	p := newProcesses(t, "worker")
	p.threeRoles()
	const server = "https://127.0.0.1:7480"
	login(t, server, p.data("root"))
	dir := t.TempDir()
	writeAuthority(t, "127.0.0.1:7480", filepath.Join(dir, "ca.pem"))
	document, err := filepath.Abs("../docs/openapi.json")
	if err != nil {
		t.Fatalf("the document: %v", err)
	}
	program, err := filepath.Abs("testdata/pythonclient/use.py")
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	password, err := os.ReadFile(filepath.Join(p.data("root"), parents.AdminPasswordFile))
	if err != nil {
		t.Fatalf("the password: %v", err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SKERRY_SERVER="+server, "SKERRY_PASSWORD="+strings.TrimSpace(string(password)), "PYTHONPATH="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("-m", "openapi_python_client", "generate", "--path", document, "--meta", "none", "--output-path", "skerryapi")
	got := run(program)
	want := `registered default/anvil
registered default/buoy
registered default/cleat
pages [['anvil', 'buoy'], ['cleat']]
instances 0
refused 422 spec.services[0].replicas
`
	if got != want {
		t.Errorf("the program wrote %q, want %q", got, want)
	}
}

// writeAuthority writes the certificate of a server's authority, which is the last of its chain, to a file.
func writeAuthority(t *testing.T, address, file string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	defer conn.Close()
	chain := conn.ConnectionState().PeerCertificates
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[len(chain)-1].Raw})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatalf("write %s: %v", file, err)
	}
}
