package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// acmeLab is a site that orders certificates of the authority at host ca. The authority finds all hosts at gate.
const acmeLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, address: 10.88.0.10, admission: {trusted: [default]}, args: [
   --acme-url, "https://10.88.0.50:14000/dir", --acme-accept-terms, --acme-email, operator@example.org, --acme-ca, CAFILE,
   --acme-dns-hook, HOOK, --acme-domain, example.org, --acme-orders, "1000"]}
- {name: gate, role: worker, address: 10.88.0.20}
- {name: ca, role: none, address: 10.88.0.50}
- {name: outside, role: none, address: 10.88.0.60}
`

// acmeApp has a host that is proved at port 80, and the second one none of whose instances ever runs, at port 443.
const acmeApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    ingress:
    - {host: shop.example.org, port: http}
    - {host: shop.example.org, port: http, tls: acme}
`

// oneHost is an application of one host, of which no instance can run.
const oneHost = `
apiVersion: skerry/v1
kind: Application
metadata: {name: NAME}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {labels: {pool: nowhere}}
    ingress:
    - {host: "HOST", port: http, tls: acme}
`

// publicSite is a site with an authority.
type publicSite struct {
	*liveSite
	ca    *testenv.ACME
	roots string // file with what signs the authority's certificates
	hook  string // file with what the DNS program was called with
}

func newPublicSite(t *testing.T, life time.Duration) *publicSite {
	t.Helper()
	site := &publicSite{ca: &testenv.ACME{HTTPPort: 80, TLSPort: 443, Life: life, BadNonces: 20, Hosts: "10.88.0.20", Address: "10.88.0.50",
		Port: 14000}}
	site.ca.Prepare(t, "..")
	dir := t.TempDir()
	site.roots, site.hook = filepath.Join(dir, "roots.pem"), filepath.Join(dir, "hook.log")
	hook := filepath.Join(dir, "hook")
	text := fmt.Sprintf(`#!/bin/sh
echo "$@" >> %s
case $1 in
set) curl -sf -d "{\"host\":\"$2.\",\"value\":\"$3\"}" %s/set-txt ;;
unset) curl -sf -d "{\"host\":\"$2.\"}" %s/clear-txt ;;
esac
`, site.hook, site.ca.DNS, site.ca.DNS)
	if err := os.WriteFile(hook, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	site.liveSite = newSite(t, strings.NewReplacer("CAFILE", site.ca.CAFile, "HOOK", hook).Replace(acmeLab), "")
	site.start(site.ca.Serve)
	return site
}

// start starts the authority, or starts it anew, in its host.
func (s *publicSite) start(f func()) {
	s.t.Helper()
	if err := s.l.In("ca", func() error { f(); return nil }); err != nil {
		s.t.Fatal(err)
	}
	s.await("the authority tells what it signs by", func() bool {
		out, err := s.curl("ca", "-f", "--cacert", s.ca.CAFile, s.ca.Root)
		return err == nil && os.WriteFile(s.roots, []byte(out+"\n"), 0o644) == nil
	})
}

// https asks for a host as a client does that knows what the authority signs by.
func (s *publicSite) https(host string, args ...string) (string, error) {
	return s.curl("outside", append([]string{"--cacert", s.roots, "--resolve", host + ":443:10.88.0.20", "https://" + host + "/"}, args...)...)
}

var serialLine = regexp.MustCompile(`serial=(\S+)`)

// serial is the number of the certificate that the ingress shows for a host.
func (s *publicSite) serial(host string) string {
	out := new(strings.Builder)
	cmd := exec.Command("sh", "-c", "openssl s_client -connect 10.88.0.20:443 -servername "+host+" </dev/null 2>/dev/null | "+
		"openssl x509 -noout -serial")
	cmd.Stdout = out
	if _, err := s.l.Exec(s.t.Context(), "outside", cmd); err != nil {
		s.t.Fatal(err)
	}
	if m := serialLine.FindStringSubmatch(out.String()); m != nil {
		return m[1]
	}
	return ""
}

// certificate is what the API says of the certificate of a host.
func (s *publicSite) certificate(host string) view.PublicCertificate {
	for _, a := range listOf[view.AppView](s.liveSite, "apps") {
		for _, x := range a.Services {
			for _, g := range x.Ingress {
				if g.Host == host && g.Certificate != nil {
					return *g.Certificate
				}
			}
		}
	}
	return view.PublicCertificate{}
}

// happened reports whether there is an event with a reason and a text.
func (s *publicSite) happened(reason, text string) bool {
	for _, e := range listOf[wire.Event](s.liveSite, "events") {
		if e.Reason == reason && strings.Contains(e.Text, text) {
			return true
		}
	}
	return false
}

func (s *publicSite) offer(name, host string) (string, error) {
	return s.at("site", strings.NewReplacer("NAME", name, "HOST", host).Replace(oneHost), "apply", "--no-wait", "-f", "-")
}

// TestPublicCertificates has a site order certificates of Pebble, by each challenge, before an instance runs. It keeps them over restarts,
// renews them under clients, and says what is wrong where there is none.
func TestPublicCertificates(t *testing.T) {
	site := newPublicSite(t, 30*time.Second)
	site.skerry(acmeApp, "apply", "-f", "-", "--timeout", "1m")
	answers := func(host, want string) func() bool {
		return func() bool {
			out, err := site.https(host, "-o", "/dev/null", "-w", "%{http_code}")
			return err == nil && out == want
		}
	}
	site.await("a host is proved at port 80", answers("shop.example.org", "200"))

	t.Run("before an instance", func(t *testing.T) {
		if _, err := site.offer("early", "early.example.org"); err != nil {
			t.Fatal(err)
		}
		site.await("a host is proved at port 443", answers("early.example.org", "503"))
		if _, err := site.offer("wild", "*.wild.example.org"); err != nil {
			t.Fatal(err)
		}
		site.await("a wildcard is proved by a record", answers("any.wild.example.org", "503"))
		said, err := os.ReadFile(site.hook)
		if err != nil || !strings.HasPrefix(string(said), "set _acme-challenge.wild.example.org ") ||
			!strings.Contains(string(said), "\nunset _acme-challenge.wild.example.org ") {
			t.Errorf("the DNS program was called with %q, %v, want set and unset", said, err)
		}
	})

	t.Run("refused", func(t *testing.T) {
		for host, want := range map[string]string{
			"shop.example.com": "the site orders no certificates for host shop.example.com, only in example.org",
			"example.org.evil": "the site orders no certificates for host example.org.evil, only in example.org",
		} {
			if _, err := site.offer("refused", host); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("apply with host %s: got %v, want %q", host, err, want)
			}
		}
	})

	t.Run("a host that leads elsewhere", func(t *testing.T) {
		if out, err := site.curl("ca", "-f", "-d", `{"host":"wrong.example.org.","addresses":["10.88.0.60"]}`, site.ca.DNS+"/add-a"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := site.offer("wrong", "wrong.example.org"); err != nil {
			t.Fatal(err)
		}
		site.await("its order fails", func() bool { return site.happened("CertificateFailed", "wrong.example.org") })
		if c := site.certificate("wrong.example.org"); c.State == view.CertificateValid || c.Reason == "" {
			t.Errorf("its certificate: got %+v, want none and the reason", c)
		}
		own := filepath.Join(t.TempDir(), "own.pem")
		if err := os.WriteFile(own, site.skerry("", "certificate", "authority"), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := site.https("wrong.example.org", "--cacert", own); err != nil {
			t.Errorf("meanwhile: got %s, %v, want the site's own authority to vouch for it", out, err)
		}
		if out := string(site.skerry("", "describe", "app", "wrong")); !strings.Contains(out, "no certificate yet") {
			t.Errorf("describe: got\n%s\nwant the reason", out)
		}
		site.skerry("", "delete", "app", "wrong", "early", "wild")
	})

	t.Run("renewed under clients", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan []byte, 1)
		go func() {
			out := new(bytes.Buffer)
			// One process, as most of the time of one for each request goes into its start, with a connection and a handshake for each.
			cmd := exec.Command("curl", "-s", "--max-time", "10", "--cacert", site.roots, "--resolve", "shop.example.org:443:10.88.0.20",
				"--rate", "50/s", "--http1.1", "--no-sessionid", "-H", "Connection: close", "-o", "/dev/null",
				"-w", "%{stderr}%{http_code} %{num_connects}\n",
				"https://shop.example.org/?[1-1000000]")
			cmd.Stderr = out // which is not buffered
			_, _ = site.l.Exec(ctx, "outside", cmd)
			done <- out.Bytes()
		}()
		for range 2 {
			before := site.serial("shop.example.org")
			site.await("the certificate is renewed", func() bool { return site.serial("shop.example.org") != before })
			site.killAndStart("site")
		}
		stop()
		out := <-done
		good := bytes.Count(out, []byte("200 1\n"))
		if all := bytes.Count(out, []byte("\n")); good != all || all == 0 {
			t.Errorf("requests answered over a connection of their own: got %d of %d, want all", good, all)
		}
		t.Logf("%d requests", good)
	})

	t.Run("the authority is down", func(t *testing.T) {
		site.ca.Stop()
		site.await("an order fails", func() bool { return site.certificate("shop.example.org").Reason != "" })
		if got := site.certificate("shop.example.org"); got.State != view.CertificateValid {
			t.Errorf("meanwhile: got %+v, want the old certificate", got)
		}
		site.await("the certificate ends", func() bool { return site.certificate("shop.example.org").State == view.CertificateWaiting })
		site.start(site.ca.Start)
		site.await("the next order succeeds", answers("shop.example.org", "200"))
	})
}
