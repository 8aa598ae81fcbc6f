package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
)

// completeTrailer ends a backup that went well; without it the connection broke.
const completeTrailer = "Skerry-Backup"

// secret is what a backup is encrypted with.
type secret struct {
	passphrase string
	recipients []string
}

func (q *secret) to() ([]age.Recipient, error) {
	if q.passphrase != "" {
		r, err := store.PassphraseRecipient(q.passphrase)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%w", err)
		}
		return []age.Recipient{r}, nil
	}
	var out []age.Recipient
	for _, s := range q.recipients {
		r, err := age.ParseX25519Recipient(s)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "recipient %q: %w", s, err).
				WithHint("give an age public key, which starts with age1")
		}
		out = append(out, r)
	}
	return out, nil
}

func (p *parentLocal) backup(w http.ResponseWriter, r *http.Request) {
	// The other end encrypts: the passphrase's key costs more memory than the role has.
	w.Header().Set("Trailer", completeTrailer)
	w.Header().Set("Content-Type", "application/octet-stream")
	result := "complete"
	key, err := keyBeside(r.Context(), p.store, p.dir)
	if err == nil {
		err = store.Dump(r.Context(), p.store, w, key...)
	}
	if err != nil {
		result = err.Error()
	}
	w.Header().Set(completeTrailer, result)
}

// secretsKey is under what a backup has the key of the role's secrets.
const secretsKey = store.BesideKey + vault.KeyFile

// sealed reports whether a record has what only the key of the role opens.
func sealed(r *store.Record) bool { return apps.IsSecret(r.Key) || auth.HasSealed(r.Key, r.Value) }

// keyBeside gives the key of a role's secrets for its backup: what is sealed in the store is of no use without it.
func keyBeside(ctx context.Context, st store.Store, dir string) ([]store.Record, error) {
	path := filepath.Join(dir, vault.KeyFile)
	key, err := os.ReadFile(path)
	if err == nil {
		return []store.Record{{Key: secretsKey, Value: key}}, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("key of the secrets: %w", err)
	}
	err = store.Scan(ctx, st, func(r store.Record) error {
		if !sealed(&r) {
			return nil
		}
		return skerry.Errorf(skerry.CodeNotFound, "the store has secrets or one-time codes, and their key is not there: %s", path).
			WithHint("give the data directory of the role with --data, beside --store as well")
	})
	return nil, err
}

// checkKey refuses a key that opens nothing of what is sealed in a store: it is another role's. What was sealed for a key that is lost,
// beside what this one opens, is of no use to the role itself.
func checkKey(ctx context.Context, st store.Store, dir string) error {
	key, err := vault.OpenKey(dir)
	if err != nil {
		return err
	}
	codes := key.Derive(parents.OneTimeCodes)
	there, opens := false, false
	err = store.Scan(ctx, st, func(r store.Record) error {
		if !sealed(&r) {
			return nil
		}
		there = true
		opens = opens || auth.Opens(codes, r.Value) || slices.ContainsFunc(apps.SealedIn(r.Value), key.Opens)
		return nil
	})
	if err == nil && there && !opens {
		err = skerry.Errorf(skerry.CodeConflict, "the key in %s opens none of the secrets and one-time codes in the store: it is another one's",
			filepath.Join(dir, vault.KeyFile)).WithHint("give the data directory of the role with --data")
	}
	return err
}

// restoreKey puts the key out of a backup into a data directory. One that is there already opens nothing of what was restored.
func restoreKey(dir string, key []byte) error {
	path := filepath.Join(dir, vault.KeyFile)
	have, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(have, key):
		return nil
	case err == nil:
		err = os.Rename(path, path+".before")
	case errors.Is(err, os.ErrNotExist):
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = vault.ReplaceKey(path, key)
	}
	if err != nil {
		return fmt.Errorf("key of the secrets: %w", err)
	}
	return nil
}

// secretFlags say where a passphrase comes from.
type secretFlags struct{ passFile string }

func (f *secretFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.passFile, "passphrase-file", "", "file with the passphrase (default $SKERRY_PASSPHRASE, otherwise prompt)")
}

// get gives the passphrase, which is never empty. twice asks for it once more where it is typed.
func (f *secretFlags) get(cmd *cobra.Command, twice bool) (string, error) {
	pass, err := f.read(cmd, twice)
	if err == nil && pass == "" {
		err = skerry.Errorf(skerry.CodeInvalid, "the passphrase is empty")
	}
	return pass, err
}

func (f *secretFlags) read(cmd *cobra.Command, twice bool) (string, error) {
	if f.passFile != "" {
		b, err := os.ReadFile(f.passFile)
		if err != nil {
			return "", skerry.Errorf(skerry.CodeInvalid, "--passphrase-file: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	if v := os.Getenv("SKERRY_PASSPHRASE"); v != "" {
		return v, nil
	}
	pass, err := ctl.AskSecret(cmd, "Passphrase of the backup: ")
	if err != nil || !twice {
		return pass, err
	}
	again, err := ctl.AskSecret(cmd, "Repeat it: ")
	if err == nil && again != pass {
		err = skerry.Errorf(skerry.CodeInvalid, "the passphrases do not match")
	}
	return pass, err
}

func backupCommand() *cobra.Command {
	var data, storeURL string
	var to []string
	var sec secretFlags
	cmd := &cobra.Command{Use: "backup FILE", Short: "Back up the store of a role, encrypted", Args: cobra.ExactArgs(1),
		Long: `Back up the store of a role to FILE ("-" is standard output), encrypted with a passphrase or to age public keys.
A running role is not stopped; the backup is a consistent snapshot. It does not include images or running instances.
It includes the key of the role's secrets, from the data directory, also where the store is elsewhere: with --store, give
--data too. A store with secrets or one-time codes is not backed up without that key, or with another role's.`,
		Example: "  skerry backup --data /var/lib/skerry/root root.backup\n" +
			"  skerry backup --store etcd://127.0.0.1:2379/skerry --data /var/lib/skerry/root --to age1… root.backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			q := secret{recipients: to}
			if len(to) == 0 {
				var err error
				if q.passphrase, err = sec.get(cmd, true); err != nil {
					return err
				}
			}
			if _, err := q.to(); err != nil {
				return err
			}
			n, err := writeFile(args[0], cmd.OutOrStdout(), func(w io.Writer) error { return backup(cmd.Context(), data, storeURL, q, w) })
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "saved %d bytes; keep the passphrase or key separate from the file\n", n)
			return nil
		}}
	storeFlags(cmd, &data, &storeURL)
	cmd.Flags().StringSliceVar(&to, "to", nil, "age public key to encrypt to, instead of a passphrase; may be repeated")
	sec.add(cmd)
	return cmd
}

func storeFlags(cmd *cobra.Command, data, url *string) {
	cmd.Flags().StringVar(data, "data", filepath.Join(role.DefaultData(), "root"), "data directory of the role")
	cmd.Flags().StringVar(url, "store", "", "the role's --store, if the store is not in the data directory")
}

// sqliteURL is the store in a data directory.
func sqliteURL(data string) string { return "sqlite:" + filepath.Join(data, node.StateFile) }

func openStore(ctx context.Context, data, url string) (store.Store, error) {
	if url == "" {
		url = sqliteURL(data)
	}
	st, err := store.Open(ctx, url, store.Options{})
	if errors.Is(err, store.ErrInUse) {
		return nil, skerry.Errorf(skerry.CodeConflict, "%w", err).WithHint("stop the role first")
	}
	return st, parents.Damage(err, data)
}

func backup(ctx context.Context, data, url string, q secret, out io.Writer) error {
	if url == "" {
		resp, err := role.RequestLocal(ctx, data, "POST", "/backup", nil)
		if err == nil {
			defer resp.Body.Close()
			to, err := q.to()
			if err != nil {
				return err
			}
			enc, err := age.Encrypt(out, to...)
			if err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			if _, err := io.Copy(enc, resp.Body); err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			if t := resp.Trailer.Get(completeTrailer); t != "complete" {
				return fmt.Errorf("backup is not complete: %s", cmp.Or(t, "the role ended it")) // nor does its beginning decrypt as a whole
			}
			if err := enc.Close(); err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			return nil
		}
		if !errors.Is(err, role.ErrNotRunning) {
			return err
		}
		if _, err := os.Stat(filepath.Join(data, node.StateFile)); err != nil {
			return skerry.Errorf(skerry.CodeNotFound, "there is no store in %s", data).
				WithHint("give the role's data directory with --data, or its store with --store")
		}
	}
	st, err := openStore(ctx, data, url)
	if err != nil {
		return err
	}
	defer st.Close()
	to, err := q.to()
	if err != nil {
		return err
	}
	key, err := keyBeside(ctx, st, data)
	if err == nil && len(key) > 0 && url != "" { // else the key lies beside the store
		err = checkKey(ctx, st, data)
	}
	if err != nil {
		return err
	}
	return store.Backup(ctx, st, out, key, to...)
}

// writeFile writes a file that is there only when it is whole; "-" is the standard output.
func writeFile(name string, stdout io.Writer, write func(io.Writer) error) (int64, error) {
	var n counter
	if name == "-" {
		err := write(io.MultiWriter(stdout, &n))
		return int64(n), err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".skerry-backup-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	err = write(io.MultiWriter(f, &n))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return int64(n), err
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func restoreCommand() *cobra.Command {
	var data, storeURL, keyFile string
	var sec secretFlags
	cmd := &cobra.Command{Use: "restore FILE", Short: "Restore a backup into an empty store", Args: cobra.ExactArgs(1),
		Long: `Restore a backup into the empty store of a role; "-" reads standard input. A store that contains records is refused; a damaged
one is set aside. The whole backup is verified before anything is changed.

A restored store starts a new incarnation: the role first learns what its children run, and deletes nothing until then.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return skerry.Errorf(skerry.CodeNotFound, "%w", err)
				}
				defer f.Close()
				in = f
			}
			var ids []age.Identity
			if keyFile != "" {
				f, err := os.Open(keyFile)
				if err != nil {
					return err
				}
				ids, err = age.ParseIdentities(f)
				f.Close()
				if err != nil {
					return fmt.Errorf("--identity %s: %w", keyFile, err)
				}
			} else {
				pass, err := sec.get(cmd, false)
				if err != nil {
					return err
				}
				id, err := store.PassphraseIdentity(pass)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			if storeURL == "" {
				if err := role.MustDir(data); err != nil {
					return err
				}
			}
			var key []byte
			secrets := false
			fill := func(ctx context.Context, st store.Store) error {
				return store.Restore(ctx, st, in, func(r *store.Record) (bool, error) {
					if strings.HasPrefix(r.Key, store.BesideKey) {
						if r.Key == secretsKey {
							key = bytes.Clone(r.Value)
						}
						return false, nil
					}
					secrets = secrets || sealed(r)
					return tier.NewLife(r)
				}, ids...)
			}
			st, err := openStore(ctx, data, storeURL)
			var damaged *store.DamagedError
			if errors.As(err, &damaged) { // the backup takes its place, once it is known to be whole
				var aside string
				if aside, err = store.Replace(ctx, "sqlite:"+damaged.Path, store.Options{}, fill); err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%v; the damaged file is %s\n", damaged, aside)
				}
			} else if err == nil {
				defer st.Close()
				err = fill(ctx, st)
			}
			if err == nil && key != nil {
				err = restoreKey(data, key)
			}
			switch {
			case errors.Is(err, store.ErrNotEmpty):
				return skerry.Errorf(skerry.CodeConflict, "%w", err).WithHint("move the data directory away, or give another with --data")
			case err != nil:
				return err
			}
			if secrets && key == nil { // of a version that left it out
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: the backup has secrets or one-time codes, and not their key: put %s back into %s, "+
					"or set them anew\n", vault.KeyFile, data)
			}
			fmt.Fprint(cmd.OutOrStdout(), `The store is restored and starts a new incarnation.

What happens next:
  1. Start the role with this data directory, at the same address as before.
  2. Its children connect and report what they run. Until a child has reported, nothing of it is deleted or placed again.
  3. Instances that were started after the backup run on as orphans: "skerry get orphans" lists them; adopt or delete each one.
  4. Images are not part of a backup; push those again that no child has.
`)
			return nil
		}}
	storeFlags(cmd, &data, &storeURL)
	cmd.Flags().StringVar(&keyFile, "identity", "", "file with the age private key that decrypts the backup, instead of a passphrase")
	sec.add(cmd)
	return cmd
}
