package vault

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// chip starts a TPM2 made of software.
func chip(t *testing.T) TPM {
	t.Helper()
	for _, program := range []string{"swtpm", "systemd-creds"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "a TPM2 made of software", Why: program + " is not installed; apt-get install swtpm libtss2-tcti-swtpm0 libtss2-rc0"})
		}
	}
	dir, err := os.MkdirTemp("", "tpm") // its path goes into a socket's
	if err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(dir, "s")
	cmd := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,path="+sock, "--ctrl", "type=unixio,path="+sock+".ctrl", "--flags", "startup-clear")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(sock); err == nil {
			return TPM{Device: "swtpm:path=" + sock}
		}
	}
	t.Fatal("swtpm does not listen")
	return TPM{}
}

func TestTPM(t *testing.T) {
	tpm, dir := chip(t), t.TempDir()
	before, err := OpenKey(dir) // a worker of before, or one that got its chip later
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k, err := OpenSealedKey(t.Context(), dir, tpm)
		if err != nil || k.How() != "TPM2" || !bytes.Equal(k.Public(), before.Public()) {
			t.Fatalf("%s, %v", k.How(), err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 || files[0].Name() != SealedKeyFile {
			t.Errorf("%v, %v", files, err)
		}
		data, err := os.ReadFile(filepath.Join(dir, SealedKeyFile))
		if err != nil || bytes.Contains(data, raw[len(keyHead):len(keyHead)+16]) {
			t.Errorf("it lies in plain, or: %v", err)
		}
	}
	if _, err := OpenSealedKey(t.Context(), dir, chip(t)); err == nil || !strings.Contains(err.Error(), "cannot be opened") {
		t.Errorf("another chip: %v", err)
	}
	// Nothing here manages the chip's few sessions, as the kernel does for /dev/tpmrm0: another one.
	if k, err := OpenSealedKey(t.Context(), t.TempDir(), chip(t)); err != nil || k.How() != "TPM2" {
		t.Fatal(k, err)
	}
}

// TestNoTPM: a chip that does not work costs no secrets.
func TestNoTPM(t *testing.T) {
	dir := t.TempDir()
	for _, tpm := range []TPM{{}, {Device: filepath.Join(dir, "none")}} {
		if _, err := os.Stat(tpmDevice); err == nil && tpm.Device == "" {
			continue // this machine has one
		}
		k, err := OpenSealedKey(t.Context(), dir, tpm)
		if err != nil || !strings.HasPrefix(k.How(), "key file") {
			t.Fatalf("%s, %v", k.How(), err)
		}
		if _, err := os.Stat(filepath.Join(dir, KeyFile)); err != nil {
			t.Error(err)
		}
		t.Log(k.How())
	}
}
