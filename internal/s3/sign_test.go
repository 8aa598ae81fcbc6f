package s3

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSignatures: the examples that AWS publishes with its description of the signature.
func TestSignatures(t *testing.T) {
	for _, c := range []struct {
		method, url, body string
		headers           []string
		signature         string
	}{
		{"GET", "https://examplebucket.s3.amazonaws.com/test.txt", "", []string{"Range", "bytes=0-9"},
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"PUT", "https://examplebucket.s3.amazonaws.com/" + escape("test$file.text", true), "Welcome to Amazon S3.",
			[]string{"Date", "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class", "REDUCED_REDUNDANCY"},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"GET", "https://examplebucket.s3.amazonaws.com/?" + query("lifecycle", ""), "", nil,
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET", "https://examplebucket.s3.amazonaws.com/?" + query("prefix", "J", "max-keys", "2"), "", nil,
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		who := credentials{key: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
		sign(r, who, "us-east-1", time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC), sha256.Sum256([]byte(c.body)))
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+c.signature) {
			t.Errorf("%s %s: %s, want %s", c.method, c.url, got, c.signature)
		}
	}
}
