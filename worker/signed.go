//go:build linux

package worker

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/spec"
)

// checkSigned returns nil where the site asks for no signature, or one of its keys for the organisation has signed an image.
func checkSigned(ctx context.Context, st *artifact.Store, a *spec.Assignment, r imageref.Ref, src *artifact.Source) error {
	var keys []*ecdsa.PublicKey
	for _, pem := range a.Signers {
		list, err := artifact.ParsePublicKeys([]byte(pem))
		if err != nil {
			return fmt.Errorf("the site's policy of signers: %w", err) // never without a check
		}
		keys = slices.Concat(keys, list)
	}
	if len(keys) == 0 {
		return nil
	}
	err := artifact.Signed(ctx, st, r, keys, src)
	if _, unsigned := errors.AsType[*artifact.UnsignedError](err); unsigned {
		err = fmt.Errorf("%w; sign it with `skerry image sign`, or ask the operator of the site, who lists keys by \"signers: {%s: [...]}\" in the site's admission policy",
			err, a.Org)
	}
	return err
}
