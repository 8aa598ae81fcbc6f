package ctl

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
)

// keyPassword is the variable with the password of a private key, as cosign has it.
const keyPassword = "COSIGN_PASSWORD"

func (a *app) imageSign() *cobra.Command {
	var reg registryFlags
	var file string
	cmd := &cobra.Command{Use: "sign NAME --key FILE", Short: "Sign an image at its registry", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeImages,
		Long: `Sign what an image's name means at its registry. The signature is stored beside it, in cosign's format, under the tag
sha256-DIGEST.sig; no other service is asked. The key is a private key in PEM: one of cosign's, or one of ECDSA on P-256 as
openssl makes it. The password of cosign's is asked for, or read from COSIGN_PASSWORD.`,
		Example: "  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out site.key && openssl pkey -in site.key -pubout -out site.pub\n  skerry image sign shop/front:1 --key site.key",
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			name, err := fullName(args[0])
			if err != nil {
				return err
			}
			key, err := privateKey(cmd, file)
			if err != nil {
				return err
			}
			src, done, err := a.source(&reg, name)
			if err != nil {
				return err
			}
			defer done()
			r, err := artifact.Sign(cmd.Context(), st, name, key, src)
			if err != nil {
				return fmt.Errorf("sign %s: %w", shortName(name), err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), shortName(r.String()))
			return nil
		})}
	cmd.Flags().StringVar(&file, "key", "", "file with the private key")
	reg.add(cmd)
	return cmd
}

func (a *app) imageVerify() *cobra.Command {
	var reg registryFlags
	var files []string
	cmd := &cobra.Command{Use: "verify NAME --key FILE", Short: "Check that an image is signed", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeImages,
		Long: `Check that one of the keys has signed what an image's name means at its registry, by "skerry image sign" or by cosign, and print
that with its digest. The keys are public keys in PEM, ECDSA on P-256. A site whose admission policy has signers asks the same of
what its organisations run.`,
		Example: "  skerry image verify shop/front:1 --key site.pub",
		RunE: withImages(func(cmd *cobra.Command, st *artifact.Store, args []string) error {
			name, err := fullName(args[0])
			if err != nil {
				return err
			}
			var keys []*ecdsa.PublicKey
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return skerry.Errorf(skerry.CodeNotFound, "--key: %w", err)
				}
				list, err := artifact.ParsePublicKeys(data)
				if err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "--key %s: %w", file,
						err).WithHint("give a public key of ECDSA on P-256 in PEM, such as cosign.pub")
				}
				keys = slices.Concat(keys, list)
			}
			if len(keys) == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "no key is given").WithHint("name files with public keys with --key")
			}
			src, done, err := a.source(&reg, name)
			if err != nil {
				return err
			}
			defer done()
			r, err := artifact.Verify(cmd.Context(), st, name, keys, src)
			if _, unsigned := errors.AsType[*artifact.UnsignedError](err); unsigned {
				return skerry.Errorf(skerry.CodeConflict, "%w", err).WithHint("sign it with `skerry image sign %s --key FILE`, or check with other keys", args[0])
			}
			if err != nil {
				return fmt.Errorf("verify %s: %w", shortName(name), err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), shortName(r.String()))
			return nil
		})}
	cmd.Flags().StringArrayVar(&files, "key", nil, "file with public keys that count; may be repeated")
	reg.add(cmd)
	return cmd
}

// privateKey reads the key to sign with.
func privateKey(cmd *cobra.Command, file string) (*ecdsa.PrivateKey, error) {
	if file == "" {
		return nil, skerry.Errorf(skerry.CodeInvalid, "no key is given").WithHint("name the file with the private key with --key")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeNotFound, "--key: %w", err)
	}
	defer clear(data)
	password, given := os.LookupEnv(keyPassword)
	if artifact.Encrypted(data) && !given {
		if password, err = AskSecret(cmd, "Password of "+file+": "); err != nil {
			return nil, err
		}
	}
	key, err := artifact.ParsePrivateKey(data, []byte(password))
	switch {
	case errors.Is(err, artifact.ErrPassword):
		return nil, skerry.Errorf(skerry.CodeInvalid, "--key %s: %w", file, err).WithHint("set %s, or answer when you are asked", keyPassword)
	case err != nil:
		return nil, skerry.Errorf(skerry.CodeInvalid, "--key %s: %w", file,
			err).WithHint("give a private key of ECDSA on P-256 in PEM, such as cosign.key")
	}
	return key, nil
}
