package auth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// Scope is what an operation of the API asks of its user. Every operation names exactly one.
type Scope string

// Scopes. Public needs no user and Self only one that is logged in.
const (
	ScopePublic       Scope = "public"
	ScopeSelf         Scope = "self"
	ScopeAppsRead     Scope = "apps:read"
	ScopeAppsWrite    Scope = "apps:write"
	ScopeAppsLogs     Scope = "apps:logs"
	ScopeAppsExec     Scope = "apps:exec"
	ScopeAppsForward  Scope = "apps:forward"
	ScopeSecretsWrite Scope = "secrets:write" // none reads them
	ScopeImagesRead   Scope = "images:read"
	ScopeImagesPush   Scope = "images:push"
	ScopeEventsRead   Scope = "events:read"
	ScopeOrgsRead     Scope = "orgs:read"
	ScopeOrgsAdmin    Scope = "orgs:admin"
	ScopeUsersAdmin   Scope = "users:admin"
	ScopeTokensAdmin  Scope = "tokens:admin"
	ScopeMembersAdmin Scope = "members:admin"
	ScopeClustersRead Scope = "clusters:read"
	ScopeClusterAdmin Scope = "clusters:admin"
	ScopeWorkersRead  Scope = "workers:read"
	ScopeWorkersWrite Scope = "workers:write"
	ScopeMetricsRead  Scope = "metrics:read"
	ScopeAuditRead    Scope = "audit:read"
)

// Role is a bundle of scopes that is granted to a user.
type Role string

// Roles.
const (
	RoleAdmin     Role = "admin"     // everything
	RoleOperator  Role = "operator"  // runs the machines: clusters, workers, tokens; sees applications and their logs
	RoleDeveloper Role = "developer" // runs applications
	RoleViewer    Role = "viewer"    // looks at applications
)

// Roles lists the roles, the mightiest first.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleDeveloper, RoleViewer} }

// Scopes lists every scope that a role may have.
func Scopes() []Scope {
	return []Scope{ScopeAppsRead, ScopeAppsWrite, ScopeAppsLogs, ScopeAppsExec, ScopeAppsForward, ScopeSecretsWrite, ScopeImagesRead,
		ScopeImagesPush, ScopeEventsRead,
		ScopeOrgsRead, ScopeOrgsAdmin, ScopeUsersAdmin, ScopeTokensAdmin, ScopeMembersAdmin, ScopeClustersRead, ScopeClusterAdmin,
		ScopeWorkersRead, ScopeWorkersWrite, ScopeMetricsRead, ScopeAuditRead}
}

// Has tells whether a role has a scope where it is granted.
func (r Role) Has(s Scope) bool {
	switch r {
	case RoleAdmin:
		return slices.Contains(Scopes(), s)
	case RoleOperator:
		switch s {
		case ScopeAppsRead, ScopeAppsLogs, ScopeImagesRead, ScopeEventsRead, ScopeOrgsRead, ScopeTokensAdmin, ScopeMembersAdmin,
			ScopeClustersRead, ScopeClusterAdmin, ScopeWorkersRead, ScopeWorkersWrite, ScopeMetricsRead, ScopeAuditRead:
			return true
		}
	case RoleDeveloper:
		switch s {
		case ScopeAppsRead, ScopeAppsWrite, ScopeAppsLogs, ScopeAppsExec, ScopeAppsForward, ScopeSecretsWrite, ScopeImagesRead, ScopeImagesPush,
			ScopeEventsRead, ScopeOrgsRead, ScopeMetricsRead:
			return true
		}
	case RoleViewer:
		switch s {
		case ScopeAppsRead, ScopeAppsLogs, ScopeImagesRead, ScopeEventsRead, ScopeOrgsRead, ScopeMetricsRead:
			return true
		}
	}
	return false
}

// Any in a grant means every organisation or every cluster.
const Any = "*"

// Grant gives a user a role for what an organisation has at a cluster.
type Grant struct {
	Role    Role   `json:"role" doc:"admin, operator, developer or viewer." enum:"admin,operator,developer,viewer"`
	Org     string `json:"org" doc:"Organisation, or * for all organisations and for objects that belong to none, such as workers."`
	Cluster string `json:"cluster" doc:"Cluster, or * for all clusters and for objects of the root."`
}

func (g Grant) String() string { return fmt.Sprintf("%s:%s:%s", g.Role, g.Org, g.Cluster) }

func (g Grant) check() error {
	if !slices.Contains(Roles(), g.Role) {
		return skerry.Errorf(skerry.CodeInvalid, "role: %q is not a role", g.Role).WithHint("roles are admin, operator, developer and viewer")
	}
	for what, s := range map[string]string{"org": g.Org, "cluster": g.Cluster} {
		if s != Any {
			if err := skerry.CheckName(s); err != nil {
				return skerry.Errorf(skerry.CodeInvalid, "%s: %w", what, err).WithHint("give a name, or * for all")
			}
		}
	}
	return nil
}

// Principal is whoever makes a request.
type Principal struct {
	User    string  `json:"user"`
	Session string  `json:"-"`               // of a login
	Token   string  `json:"token,omitempty"` // name of the access token used
	TokenID string  `json:"-"`               // and its id: another token may get its name
	Grants  []Grant `json:"grants"`
	Only    []Scope `json:"only,omitempty"` // an access token may be limited to these
}

// May tells whether the principal has a scope for an object of an organisation at a cluster. An empty org or cluster
// means an object that belongs to none, for which only grants on all count.
func (p *Principal) May(s Scope, org, cluster string) bool {
	if s == ScopePublic {
		return true
	}
	if p == nil {
		return false
	}
	if s == ScopeSelf {
		return true
	}
	if len(p.Only) > 0 && !slices.Contains(p.Only, s) {
		return false
	}
	return slices.ContainsFunc(p.Grants, func(g Grant) bool {
		return g.Role.Has(s) && (g.Org == Any || g.Org == org && org != "") && (g.Cluster == Any || g.Cluster == cluster && cluster != "")
	})
}

// MayOf tells whether the principal has a scope for something of an organisation, at whatever cluster.
func (p *Principal) MayOf(s Scope, org string) bool {
	return p.Somewhere(s) && slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Role.Has(s) && (g.Org == Any || g.Org == org) })
}

// Somewhere tells whether the principal has a scope for anything at all.
func (p *Principal) Somewhere(s Scope) bool {
	if s == ScopePublic || p != nil && s == ScopeSelf {
		return true
	}
	return p != nil && (len(p.Only) == 0 || slices.Contains(p.Only, s)) &&
		slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Role.Has(s) })
}

// ParseGrant reads ROLE:ORG or ROLE:ORG:CLUSTER; without a cluster all are meant.
func ParseGrant(s string) (Grant, error) {
	parts := strings.Split(s, ":")
	if len(parts) > 3 {
		return Grant{}, skerry.Errorf(skerry.CodeInvalid, "grant %q has too many parts",
			s).WithHint("write ROLE:ORG:CLUSTER, such as developer:acme:*")
	}
	if len(parts) < 2 || parts[1] == "" {
		return Grant{}, skerry.Errorf(skerry.CodeInvalid, "grant %q names no organisation",
			s).WithHint("write %s:ORG, or %s:* for all organisations and the site itself", parts[0], parts[0])
	}
	parts = append(parts, "")
	g := Grant{Role(parts[0]), parts[1], cmp.Or(parts[2], Any)}
	return g, g.check()
}
