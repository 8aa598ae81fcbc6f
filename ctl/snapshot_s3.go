package ctl

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	sealing "filippo.io/age"
	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/s3"
)

const s3Long = `This machine connects to S3, not the cluster, with the credentials in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, of
temporary ones, AWS_SESSION_TOKEN. --s3-endpoint, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names another server than that of AWS, and
AWS_CA_BUNDLE a file with its authority.`

func addS3(cmd *cobra.Command, c *s3.Config) {
	cmd.Flags().StringVar(&c.Endpoint, "s3-endpoint", "",
		"URL of the S3 server (default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or that of AWS)")
	cmd.Flags().StringVar(&c.Region, "s3-region", "",
		"region of the bucket (default: AWS_REGION, AWS_DEFAULT_REGION, or us-east-1 with an endpoint)")
}

// objectOf gives the object that a name is the URL of, or nil: it is the name of a file.
func objectOf(name string, c s3.Config) (*s3.Client, error) {
	if !strings.HasPrefix(name, s3.Scheme) {
		return nil, nil
	}
	return s3.New(name, c)
}

// upload writes a snapshot to an object, encrypted on the way.
func upload(cmd *cobra.Command, to *s3.Client, from io.ReadCloser, length int64, recipients []sealing.Recipient) error {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := sealTo(w, from, recipients)
		if err != nil {
			err = skerry.Errorf(skerry.CodeUnavailable, "the snapshot cannot be read to its end: %w", err).
				WithHint("try again; there is no new object")
		}
		w.CloseWithError(err)
	}()
	n, err := to.Upload(cmd.Context(), r, length)
	r.Close()
	from.Close() // it may wait for the cluster
	<-done
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "saved %d bytes in %s\n", n, to)
	}
	return err
}

// source remembers why reading ended before its end.
type source struct {
	io.Reader
	err atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err.Store(&err)
	}
	return n, err
}
