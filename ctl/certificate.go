package ctl

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (a *app) certificateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "certificate", Aliases: []string{"cert"}, Short: "Manage certificates for ingresses",
		Long: `Manage certificates for ingresses. A manifest refers to a certificate of its organisation with tls: NAME. The certificate is
stored where the application is applied, and sent to the workers that serve the ingress. Its key is never shown.`}
	org := "default"
	var certFile, keyFile string
	put := &cobra.Command{Use: "put NAME", Short: "Store a certificate, replacing one of the same name", Args: cobra.ExactArgs(1),
		Example: "  skerry certificate put shop --cert fullchain.pem --key privkey.pem",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			if certFile == "" || keyFile == "" {
				return skerry.Errorf(skerry.CodeInvalid, "the certificate or its key is missing").WithHint("give --cert FILE and --key FILE")
			}
			cert, err := os.ReadFile(certFile)
			if err != nil {
				return err
			}
			key, err := os.ReadFile(keyFile)
			if err != nil {
				return err
			}
			v, err := client.PutCertificate(cmd.Context(), org, args[0], api.Certificate{Certificate: string(cert), Key: string(key)})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "certificate/%s for %s, until %s\n", v.Name, strings.Join(v.Hosts, ", "),
				v.NotAfter.Local().Format(time.DateOnly))
			if v.NotAfter.Before(time.Now()) {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: it has expired, and clients will refuse it")
			}
			return nil
		})}
	put.Flags().StringVar(&certFile, "cert", "", "file with the certificate and its chain, PEM")
	put.Flags().StringVar(&keyFile, "key", "", "file with its private key, PEM")
	var flags getFlags
	get := &cobra.Command{Use: "get [NAME...]", Aliases: []string{"list", "ls"}, Short: "List certificates, without their keys",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			return a.get(cmd, client, &flags, append([]string{"certificate"}, args...))
		})}
	outputFlag(get, &flags.output)
	remove := &cobra.Command{Use: "delete NAME...", Aliases: []string{"rm"}, Short: "Remove certificates that no application uses",
		Args: cobra.MinimumNArgs(1),
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			var errs []error
			for _, name := range args {
				if err := client.DeleteCertificate(cmd.Context(), org, name); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "certificate/%s deleted\n", name)
			}
			return joinErrors(cmd, errs)
		})}
	authority := &cobra.Command{Use: "authority", Short: "Print the CA certificate of ingresses with tls: self", Args: cobra.NoArgs,
		Long:    "Print the CA certificate of a site's ingresses, as PEM. Clients that trust it accept ingresses with tls: self.\nAsk the cluster; each has a CA of its own.",
		Example: "  skerry certificate authority > site.pem\n  curl --cacert site.pem https://shop.example.org/",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			x, err := client.IngressAuthority(cmd.Context())
			if err == nil {
				fmt.Fprint(cmd.OutOrStdout(), x.Certificate)
			}
			return err
		})}
	for _, c := range []*cobra.Command{put, remove} {
		c.Flags().StringVar(&org, "org", org, "organisation that owns it")
	}
	cmd.AddCommand(put, get, remove, authority)
	return cmd
}

// lastDay tells until when a certificate is good, or was.
func lastDay(now, ends time.Time) string {
	day := ends.Local().Format(time.DateOnly)
	if ends.Before(now) {
		day += " (expired)"
	}
	return day
}

func listCertificates(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	orgs, err := c.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	var out []item
	for _, o := range orgs {
		list, err := c.Certificates(ctx, o.Name)
		if err != nil {
			return nil, err
		}
		for _, v := range list {
			out = append(out, item{name: v.Name, value: v, cells: []string{v.Name, v.Org, strings.Join(v.Hosts, ","),
				lastDay(q.now, v.NotAfter), age(q.now, v.UpdatedAt)},
				wide: []string{v.Issuer, v.Print, v.Author}})
		}
	}
	return out, nil
}

func listIngress(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Apps(ctx, q.namespace)
	var out []item
	for _, v := range list {
		if q.app != "" && v.Key.Name != q.app {
			continue
		}
		for _, s := range v.Services {
			for _, g := range s.Ingress {
				name := q.showKey(v.Key) + "/" + s.Name
				out = append(out, item{name: name, value: g, cells: []string{name, g.Host, g.Path, strconv.Itoa(g.Listen), g.Protocol, string(g.TLS),
					strings.Join(g.At, ",")},
					wide: []string{string(g.Policy), strings.Join(g.Problems, "; ")}})
			}
		}
	}
	return out, err
}

// ingressText tells what clients come to, where, and what is in the way.
func ingressText(g *view.IngressView) string {
	host := g.Host
	if host == "" {
		host = "*"
	}
	out := fmt.Sprintf("%s:%d%s", host, g.Listen, g.Path)
	if g.TLS != "" && g.TLS != spec.TLSOff {
		out += " with tls " + string(g.TLS)
	}
	if len(g.At) > 0 {
		out += " at " + strings.Join(g.At, ", ")
	}
	if g.Certificate != nil {
		out += "; " + certificateText(g.Certificate)
	}
	if len(g.Problems) > 0 {
		out += "; " + strings.Join(g.Problems, "; ")
	}
	return out
}

// certificateText says how far the certificate of a host is.
func certificateText(c *view.PublicCertificate) string {
	var out string
	switch c.State {
	case view.CertificateValid:
		out = "certificate valid until " + c.NotAfter.Local().Format(time.DateTime)
	case view.CertificateOrdering:
		out = "no certificate yet, it is being ordered"
	case view.CertificateRefused:
		out = "no certificate"
	case view.CertificateUnserved:
		out = "certificate not served"
	default:
		out = "no certificate yet"
	}
	if c.Reason != "" {
		out += " (" + c.Reason + ")"
	}
	return out
}

// certificatesText sums up the certificates of a site's ingresses.
func certificatesText(sum *wire.SiteCertificates) string {
	if sum == nil {
		return ""
	}
	text := fmt.Sprintf("%d/%d valid", sum.Valid, sum.Hosts)
	for _, part := range []struct {
		n    int
		what string
	}{{sum.Expiring, "expiring"}, {sum.Failing, "failing"}, {sum.Unserved, "unserved"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}
