package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// scryptWork is the cost of a passphrase: 2^16 needs 64 MiB and a fraction of a second, which small machines can give.
// maxScryptWork is what Restore accepts from a file.
const (
	scryptWork    = 16
	maxScryptWork = 18
)

// MinPassphrase is the length in bytes below which a backup's passphrase is refused.
const MinPassphrase = 10

// PassphraseRecipient encrypts a backup to a passphrase. It must be the only recipient.
func PassphraseRecipient(passphrase string) (age.Recipient, error) {
	if len(passphrase) < MinPassphrase {
		return nil, fmt.Errorf("the passphrase has %d characters; use at least %d, for a backup holds every secret", len(passphrase),
			MinPassphrase)
	}
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	r.SetWorkFactor(scryptWork)
	return r, nil
}

// PassphraseIdentity opens a backup made with PassphraseRecipient.
func PassphraseIdentity(passphrase string) (age.Identity, error) {
	id, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	id.SetMaxWorkFactor(maxScryptWork)
	return id, nil
}

// Backup writes a dump of the running store, encrypted to the recipients in the age format.
func Backup(ctx context.Context, s Store, w io.Writer, beside []Record, to ...age.Recipient) error {
	if len(to) == 0 {
		return errors.New("backup: name a passphrase or a recipient; a backup holds every secret and is always encrypted")
	}
	enc, err := age.Encrypt(w, to...)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := Dump(ctx, s, enc, beside...); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// Restore fills an empty store from a backup. Like Load it verifies everything before it writes anything. The caller
// begins a new incarnation by means of alter.
func Restore(ctx context.Context, s Store, r io.Reader, alter Alter, ids ...age.Identity) error {
	return loadFrom(ctx, s, r, alter, func(r io.Reader) (io.Reader, error) {
		dec, err := age.Decrypt(r, ids...)
		var wrong *age.NoIdentityMatchError
		switch {
		case errors.As(err, &wrong):
			return nil, fmt.Errorf("the backup does not open with this passphrase or key: %w", err)
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrBadDump, err)
		}
		return dec, nil
	})
}
