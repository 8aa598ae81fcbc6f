package main

import (
	"crypto/x509"
	"io"
	"net/mail"
	"net/url"
	"os"
	"os/exec"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/internal/acmeclient"
	"skerry.dev/skerry/spec"
)

// acmeFlags say of which authority a cluster orders certificates, and for what.
type acmeFlags struct {
	url, email, ca, hook string
	eabID, eabKey        string
	terms                bool
	domains              []string
	hosts, orders        int
}

func (f *acmeFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.url, "acme-url", "",
		"directory of the certificate authority that signs for ingresses with tls: acme, such as "+
			"https://acme-v02.api.letsencrypt.org/directory (default: none)")
	fs.BoolVar(&f.terms, "acme-accept-terms", false, "accept the terms of service of that authority; needed with --acme-url")
	fs.StringVar(&f.email, "acme-email", "", "address at which the authority reaches the operator")
	fs.StringVar(&f.ca, "acme-ca", "", "file with the CA certificates, as PEM, by which the authority's own server is known "+
		"(default: those of the system)")
	fs.StringVar(&f.eabID, "acme-eab-kid", "", "key identifier of the account that the operator has with the authority, where it asks for "+
		"one (external account binding)")
	fs.StringVar(&f.eabKey, "acme-eab-key-file", "", "file with the key that belongs to --acme-eab-kid, as the authority shows it (base64url)")
	fs.StringVar(&f.hook, "acme-dns-hook", "",
		"program that is run as PROGRAM set NAME VALUE, or unset, for TXT records; needed for *.DOMAIN and for hosts that the "+
			"authority cannot reach")
	fs.StringSliceVar(&f.domains, "acme-domain", nil, "domain that hosts with tls: acme must be in; may be repeated (default: any)")
	fs.IntVar(&f.hosts, "acme-hosts", 50, "number of hosts for which an organisation may have such certificates")
	fs.IntVar(&f.orders, "acme-orders", 20, "number of orders that the site makes within an hour; an organisation may use half of them")
}

// options checks the flags.
func (f *acmeFlags) options() (policy certs.Policy, opt cluster.ACMEOptions, err error) {
	bad := func(hint, format string, args ...any) (certs.Policy, cluster.ACMEOptions, error) {
		return policy, opt, skerry.Errorf(skerry.CodeInvalid, format, args...).WithHint("%s", hint)
	}
	if f.url == "" {
		if f.terms || f.email != "" || f.ca != "" || f.hook != "" || f.eabID != "" || f.eabKey != "" || len(f.domains) > 0 {
			return bad("name the certificate authority with --acme-url", "--acme-url is missing")
		}
		return policy, opt, nil
	}
	if u, err := url.Parse(f.url); err != nil || u.Scheme != "https" || u.Host == "" {
		return bad("write it as https://HOST/PATH", "--acme-url %q is not an address by https", f.url)
	}
	if !f.terms {
		return bad("read its terms of service, and add --acme-accept-terms", "the authority's terms are not accepted")
	}
	if f.email != "" {
		if a, err := mail.ParseAddress(f.email); err != nil || a.Address != f.email {
			return bad("write it as operator@example.org", "--acme-email %q is not a mail address", f.email)
		}
	}
	for _, d := range f.domains {
		if err := spec.CheckHost(d); err != nil {
			return bad("write it as example.org", "--acme-domain: %v", err)
		}
	}
	if f.hosts < 1 || f.orders < 1 {
		return bad("give 1 or more", "--acme-hosts and --acme-orders must be positive")
	}
	policy = certs.Policy{Directory: f.url, Domains: f.domains, DNS: f.hook != "", HostsPerOrg: f.hosts, OrdersPerHour: f.orders}
	opt = cluster.ACMEOptions{Email: f.email}
	if opt.BindingID, opt.BindingKey, err = f.binding(); err != nil {
		return policy, opt, err
	}
	if f.hook != "" {
		if opt.Hook, err = exec.LookPath(f.hook); err != nil {
			return bad("give the path of a program that may be executed", "--acme-dns-hook: %v", err)
		}
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if opt.Roots = x509.NewCertPool(); err != nil || !opt.Roots.AppendCertsFromPEM(text) {
			return bad("give a file with certificates as PEM", "--acme-ca %s: there is no certificate in it (%v)", f.ca, err)
		}
	}
	return policy, opt, nil
}

// maxEABKey bounds the file with the key of an external account; authorities give keys of 32 to 64 bytes.
const maxEABKey = 4 << 10

// binding reads what binds the site's account to one of the operator's; empty: nothing does.
func (f *acmeFlags) binding() (id string, key []byte, err error) {
	if f.eabID == "" && f.eabKey == "" {
		return "", nil, nil
	}
	if f.eabID == "" || f.eabKey == "" {
		return "", nil, skerry.Errorf(skerry.CodeInvalid, "--acme-eab-kid and --acme-eab-key-file go together").
			WithHint("the authority shows both where it has the operator's account")
	}
	file, err := os.Open(f.eabKey)
	if err != nil {
		return "", nil, skerry.Errorf(skerry.CodeInvalid, "--acme-eab-key-file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxEABKey))
	if err == nil {
		key, err = acmeclient.ParseBindingKey(string(text))
	}
	if err != nil {
		return "", nil, skerry.Errorf(skerry.CodeInvalid, "--acme-eab-key-file %s: %w", f.eabKey, err).
			WithHint("write the key as the authority shows it, and nothing else, into the file")
	}
	return f.eabID, key, nil
}
