package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skerry.dev/skerry/internal/files"
)

// SealedKeyFile is the file of a key that a TPM2 opens, in place of KeyFile.
const SealedKeyFile = KeyFile + ".tpm2"

const (
	tpmDevice = "/dev/tpmrm0"
	howTPM    = "TPM2"
	// tpmTime bounds what a chip takes: some are slow, and none is to hold up a start for long.
	tpmTime = 30 * time.Second
	// tpmName is what the credential is called; it opens under this name only.
	tpmName = "skerry-secrets-key"
)

// TPM is the machine's TPM2 as systemd-creds(1) speaks to it. The zero value is the usual one.
type TPM struct {
	Device string // as in --tpm2-device; empty: /dev/tpmrm0
}

// there reports whether there is a chip, and what speaks to it.
func (t TPM) there() bool {
	if _, err := exec.LookPath("systemd-creds"); err != nil {
		return false
	}
	if t.Device != "" {
		return true
	}
	_, err := os.Stat(tpmDevice)
	return err == nil
}

// run has systemd-creds seal or open something.
func (t TPM) run(ctx context.Context, in []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tpmTime)
	defer cancel()
	device := t.Device
	if device == "" {
		device = tpmDevice
	}
	cmd := exec.CommandContext(ctx, "systemd-creds", append([]string{"--name=" + tpmName, "--tpm2-device=" + device}, args...)...)
	var why bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(in), &why, time.Second
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(why.String()), "\n")
		return nil, fmt.Errorf("systemd-creds: %w: %s", err, lines[len(lines)-1])
	}
	return out, nil
}

// seal keeps a key so that this chip alone opens it, in the state of its secure boot (PCR 7). It was opened once when this is done.
func (t TPM) seal(ctx context.Context, k *Key, path string) error {
	raw, err := k.private.Bytes()
	if err != nil {
		return err
	}
	sealed, err := t.run(ctx, raw, "--with-key=tpm2", "--tpm2-pcrs=7", "encrypt", "-", "-")
	if err != nil {
		return err
	}
	again, err := t.run(ctx, sealed, "decrypt", "-", "-")
	if err == nil && !bytes.Equal(again, raw) {
		err = errors.New("the TPM2 opens something else than it sealed")
	}
	if err != nil {
		return err
	}
	return files.Replace(path, sealed, 0o600)
}

func (t TPM) open(ctx context.Context, sealed []byte) (*Key, error) {
	raw, err := t.run(ctx, sealed, "decrypt", "-", "-")
	if err != nil {
		return nil, err
	}
	return parseKey(keyHead + base64.StdEncoding.EncodeToString(raw))
}

// OpenSealedKey is OpenKey for a machine that may have a TPM2, which then keeps the key: the disk alone opens nothing. Where there is
// none, or it does not work, that is a key file, and How says so.
func OpenSealedKey(ctx context.Context, dir string, t TPM) (*Key, error) {
	sealed, plain := filepath.Join(dir, SealedKeyFile), filepath.Join(dir, KeyFile)
	data, err := os.ReadFile(sealed)
	if err == nil {
		k, err := t.open(ctx, data)
		if err != nil {
			return nil, fmt.Errorf("key of the secrets: %s cannot be opened: %w; if it is of another machine, or this one's secure boot was changed for good, remove it: a new key is made, and secrets are fetched again", sealed, err)
		}
		k.how = howTPM
		return k, removePlain(plain)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key of the secrets: %w", err)
	}
	if !t.there() {
		return OpenKey(dir)
	}
	if _, err := os.Stat(plain); err == nil {
		k, err := OpenKey(dir)
		if err != nil {
			return nil, err
		}
		return k, k.move(ctx, t, sealed, plain)
	}
	k, err := NewKey()
	if err != nil {
		return nil, err
	}
	if err := k.move(ctx, t, sealed, plain); err != nil || k.how == howTPM {
		return k, err
	}
	return k, k.write(plain)
}

// move has the chip keep the key in place of a file. What does not work is told by How.
func (k *Key) move(ctx context.Context, t TPM, sealed, plain string) error {
	if err := t.seal(ctx, k, sealed); err != nil {
		k.how = howFile + "; the TPM2 does not do: " + err.Error()
		return nil
	}
	k.how = howTPM
	return removePlain(plain)
}

func removePlain(path string) error {
	for _, p := range []string{path, filepath.Join(filepath.Dir(path), CheckFile)} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("key of the secrets: %w", err)
		}
	}
	return nil
}
