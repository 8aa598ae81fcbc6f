package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"skerry.dev/skerry"
)

// Problem is an error that a server reported.
type Problem struct {
	Status int
	Reason string // of the protocol, such as NoSuchBucket
	Text   string
	Region string // where the bucket is, if it is said
}

func (e *Problem) Error() string {
	text := e.Text
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// problem reads an error. Some have no body, such as those of HEAD, and those of what stands before a server.
func (c *Client) problem(res *http.Response, body []byte) *Problem {
	e := &Problem{Status: res.StatusCode, Reason: element(body, "Code"), Text: element(body, "Message"), Region: element(body, "Region")}
	if r := res.Header.Get("X-Amz-Bucket-Region"); r != "" {
		e.Region = clip(r)
	}
	return e
}

// element gives the text of the first element of a name in an answer, which are flat enough for that; "": there is none.
func element(body []byte, name string) string {
	_, rest, _ := strings.Cut(string(body), "<"+name+">")
	text, _, ok := strings.Cut(rest, "</"+name+">")
	if !ok {
		return ""
	}
	return clip(html.UnescapeString(text))
}

// clip bounds what a server says, and leaves out what would move somebody's cursor.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffd {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), 1024)], "")
}

func escapeXML(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// full reports whether a server has no room; it will not have any in a moment.
func (e *Problem) full() bool {
	return e.Status == http.StatusInsufficientStorage || e.Reason == "InsufficientStorage" || e.Reason == "XMinioStorageFull"
}

// temporary reports whether it may help to try again.
func temporary(err error) bool {
	if e, ok := errors.AsType[*Problem](err); ok {
		return e.Status >= 500 && e.Status != http.StatusNotImplemented && !e.full() ||
			e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout ||
			e.Reason == "SlowDown" || e.Reason == "RequestTimeout" || e.Reason == "InternalError"
	}
	if _, ok := errors.AsType[*skerry.Error](err); ok {
		return false
	}
	return !errors.Is(err, context.Canceled) && untrusted(err) == "" && !notFound(err)
}

// untrusted says what keeps a connection from being trusted; "": nothing does.
func untrusted(err error) string {
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e.Error()
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") || strings.Contains(err.Error(), "remote error: tls:") {
		return err.Error()
	}
	return ""
}

func notFound(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && e.IsNotFound
}

// explain makes an error one that says what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*skerry.Error](err); ok {
		return err
	}
	host := c.url.Host
	e, ok := errors.AsType[*Problem](err)
	if !ok {
		if u, is := errors.AsType[*url.Error](err); is {
			err = u.Err // without what the request was
		}
		switch why := untrusted(err); {
		case why != "":
			return skerry.Errorf(skerry.CodeUnavailable, "the TLS connection to %s cannot be trusted: %s", host, why).
				WithHint("name the file with its authority in AWS_CA_BUNDLE, or correct --s3-endpoint (https:// or http://)")
		case notFound(err):
			return skerry.Errorf(skerry.CodeUnavailable, "there is no host %s", host).
				WithHint("check --s3-endpoint, --s3-region and the bucket's name")
		case errors.Is(err, io.ErrUnexpectedEOF):
			return skerry.Errorf(skerry.CodeUnavailable, "%s broke off, again and again", host).WithHint("try again later")
		}
		return skerry.Errorf(skerry.CodeUnavailable, "%s cannot be reached: %w", host, err).WithHint("check --s3-endpoint, or try again later")
	}
	fail := func(code skerry.Code, text, hint string) error {
		return &skerry.Error{Code: code, Message: text + ": " + e.Error(), Hint: hint, Cause: e}
	}
	elsewhere := e.Status == http.StatusMovedPermanently || e.Status == http.StatusTemporaryRedirect ||
		e.Reason == "AuthorizationHeaderMalformed"
	switch {
	case e.Region != "" && e.Region != c.region && (elsewhere || e.Status == http.StatusForbidden):
		return fail(skerry.CodeInvalid, "bucket "+c.bucket+" is in region "+e.Region+", and not in "+c.region,
			"add --s3-region "+e.Region+", or set AWS_REGION")
	case elsewhere:
		return fail(skerry.CodeInvalid, "bucket "+c.bucket+" is not in region "+c.region, "add --s3-region, or set AWS_REGION")
	case e.Reason == "RequestTimeTooSkewed":
		return fail(skerry.CodeUnavailable, "the clock of this machine is not that of "+host, "set the clock")
	case e.full():
		return fail(skerry.CodeUnavailable, host+" has no room for "+c.String(), "make room there: delete old objects, or enlarge its disk")
	case e.Reason == "InvalidAccessKeyId" || e.Reason == "XAdminUserNotFound": // the second one is Versity's
		return fail(skerry.CodeUnauthorized, host+" does not know the access key", "correct AWS_ACCESS_KEY_ID")
	case e.Reason == "SignatureDoesNotMatch":
		return fail(skerry.CodeUnauthorized, host+" does not accept the signature", "correct AWS_SECRET_ACCESS_KEY and --s3-region")
	case e.Reason == "ExpiredToken" || e.Reason == "InvalidToken":
		return fail(skerry.CodeUnauthorized, host+" does not accept the session", "get new credentials, with their AWS_SESSION_TOKEN")
	case e.Reason == "NoSuchBucket":
		return fail(skerry.CodeNotFound, "there is no bucket "+c.bucket+" at "+host, "make it, or correct the URL")
	case e.Reason == "NoSuchKey" || e.Status == http.StatusNotFound:
		return fail(skerry.CodeNotFound, "there is no "+c.String(), "check the key; `aws s3 ls` lists what there is")
	case e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized:
		return fail(skerry.CodeForbidden, "access to "+c.String()+" is denied",
			"the credentials need s3:PutObject and s3:AbortMultipartUpload to export, s3:GetObject to import, and s3:DeleteObject for schedules")
	case e.Status == http.StatusPreconditionFailed:
		return fail(skerry.CodeConflict, c.String()+" was written again while it was read", "try again")
	case temporary(e):
		return fail(skerry.CodeUnavailable, host+" does not do it", "try again later")
	}
	return fail(skerry.CodeInvalid, host+" does not do it", "check the URL and --s3-endpoint")
}
