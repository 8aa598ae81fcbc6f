package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestACMEFlags refuses what an operator may get wrong, and accepts an authority's terms only where they are accepted.
func TestACMEFlags(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "eab")
	if err := os.WriteFile(key, []byte("MDEyMzQ1Njc4OTAxMjM0NQ==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "--acme-url https://ca.example/dir "
	for args, want := range map[string]string{
		"":                          "{ [] false 0 0}, <nil>",
		"--acme-domain example.org": "--acme-url is missing",
		"--acme-url http://ca --acme-accept-terms": "is not an address by https",
		at:                         "the authority's terms are not accepted",
		at + "--acme-accept-terms": "{https://ca.example/dir [] false 50 20}, <nil>",
		at + "--acme-accept-terms --acme-domain a.b,c.d --acme-hosts 3 --acme-orders 4 --acme-dns-hook " +
			"true": "{https://ca.example/dir [a.b c.d] true 3 4}, <nil>",
		at + "--acme-accept-terms --acme-email nobody":                             "is not a mail address",
		at + "--acme-accept-terms --acme-domain A_B":                               "is not a host name",
		at + "--acme-accept-terms --acme-orders 0":                                 "must be positive",
		at + "--acme-accept-terms --acme-dns-hook /none":                           "--acme-dns-hook",
		at + "--acme-accept-terms --acme-ca " + junk:                               "there is no certificate in it",
		at + "--acme-accept-terms --acme-ca /none/ca.pem":                          "no such file",
		"--acme-eab-kid me":                                                        "--acme-url is missing",
		at + "--acme-accept-terms --acme-eab-kid me":                               "go together",
		at + "--acme-accept-terms --acme-eab-kid me --acme-eab-key-file /none/key": "no such file",
		at + "--acme-accept-terms --acme-eab-kid me --acme-eab-key-file " + junk:   "is too short",
		at + "--acme-accept-terms --acme-eab-kid me --acme-eab-key-file " + key:    "{https://ca.example/dir [] false 50 20}, <nil>",
	} {
		var f acmeFlags
		fs := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
		f.add(fs)
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		policy, _, err := f.options()
		if got := fmt.Sprintf("%v, %v", policy, err); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
