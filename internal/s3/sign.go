package s3

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// credentials say who asks.
type credentials struct {
	key, secret string
	session     string // of temporary ones
}

// sign signs a request with all headers that it has, by Signature Version 4 of AWS ("Signature Calculations for the Authorization Header:
// Transferring Payload in a Single Chunk", in the reference of the S3 API). sum is the SHA-256 of its body.
func sign(r *http.Request, c credentials, region string, now time.Time, sum [32]byte) {
	at := now.UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", at)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	if c.session != "" {
		r.Header.Set("X-Amz-Security-Token", c.session)
	}
	headers := map[string]string{"host": cmp.Or(r.Host, r.URL.Host)}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(strings.Fields(strings.Join(values, ",")), " ")
	}
	var names []string
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n")
	for _, name := range names {
		b.WriteString(name + ":" + headers[name] + "\n")
	}
	signed := strings.Join(names, ";")
	b.WriteString("\n" + signed + "\n" + hex.EncodeToString(sum[:]))

	scope := at[:8] + "/" + region + "/s3/aws4_request"
	request := sha256.Sum256([]byte(b.String()))
	text := "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + hex.EncodeToString(request[:])
	key := []byte("AWS4" + c.secret)
	for _, part := range []string{at[:8], region, "s3", "aws4_request", text} {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.key+"/"+scope+
		",SignedHeaders="+signed+",Signature="+hex.EncodeToString(key))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// escape encodes as the signature has it: everything but letters, digits and -._~, and slashes where they separate.
func escape(text string, slash bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, c == '/' && slash:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// query encodes parameters in the order of their names; pairs are a name and a value each.
func query(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, escape(pairs[i], false)+"="+escape(pairs[i+1], false))
	}
	slices.Sort(list)
	return strings.Join(list, "&")
}
