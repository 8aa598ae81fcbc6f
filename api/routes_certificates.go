package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Certificate is what is uploaded.
type Certificate struct {
	Certificate string `json:"certificate" minLength:"1" doc:"The certificate in PEM, followed by its chain."`
	Key         string `json:"key" minLength:"1" doc:"The private key in PEM, without a passphrase. It is never returned."`
}

// IngressAuthority is by what clients know an ingress.
type IngressAuthority struct {
	Certificate string `json:"certificate" doc:"The authority's certificate, in PEM."`
}

func (h *Handler) addCertificates() {
	add(h, operation{ID: "list-certificates", Method: http.MethodGet, Path: "/v1/orgs/{org}/certificates", Scope: auth.ScopeAppsRead,
		Object: objOrg, Tag: "certificates", Summary: "List an organisation's ingress certificates, without their keys."},
		func(ctx context.Context, _ *auth.Principal, in *OrgPath) (*listAnswer[view.CertificateView], error) {
			if err := h.orgExists(ctx, in.Org); err != nil {
				return nil, err
			}
			list, err := h.opt.Backend.Certificates(ctx, in.Org)
			return seen(list, err, func(*view.CertificateView) bool { return true })
		})
	type nameIn struct {
		OrgPath
		Name string `path:"name" maxLength:"63"`
	}
	type putIn struct {
		OrgPath
		Name string `path:"name" maxLength:"63"`
		Body Certificate
	}
	add(h, operation{ID: "put-certificate", Method: http.MethodPut, Path: "/v1/orgs/{org}/certificates/{name}", Scope: auth.ScopeAppsWrite,
		Object: objOrg, Tag: "certificates", Summary: "Store an ingress certificate with its key, replacing any of the same name.", Audit: true},
		func(ctx context.Context, who *auth.Principal, in *putIn) (*answer[view.CertificateView], error) {
			v, err := h.opt.Backend.Do(ctx, apps.PutCertificate{Org: in.Org, Name: in.Name, Actor: who.User, CertPEM: []byte(in.Body.Certificate),
				KeyPEM: []byte(in.Body.Key)})
			if err != nil {
				return nil, err
			}
			return &answer[view.CertificateView]{v.(view.CertificateView)}, nil
		})
	addBare(h, operation{ID: "delete-certificate", Method: http.MethodDelete, Path: "/v1/orgs/{org}/certificates/{name}",
		Scope: auth.ScopeAppsWrite, Object: objOrg, Tag: "certificates",
		Summary: "Delete a certificate that no application uses.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *nameIn) (*none, error) {
			_, err := h.opt.Backend.Do(ctx, apps.DeleteCertificate{Org: in.Org, Name: in.Name})
			return nil, err
		})
	add(h, operation{ID: "ingress-authority", Method: http.MethodGet, Path: "/v1/ingress/authority", Scope: auth.ScopeAppsRead,
		Object: objEach, Tag: "certificates", At: wire.TierCluster, Summary: "Return the CA certificate of the site's ingresses with tls: self."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*answer[IngressAuthority], error) {
			pem, err := h.opt.Backend.IngressAuthority(ctx)
			return &answer[IngressAuthority]{IngressAuthority{string(pem)}}, err
		})
}
