package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const opLogin = "login"

// List is what every list answers with. Items is never null.
type List[T any] struct {
	Items []T `json:"items" nullable:"false"`
}

type (
	none              struct{}
	answer[T any]     struct{ Body T }
	listAnswer[T any] = answer[List[T]]
)

func listOf[T any](items []T) *listAnswer[T] {
	if items == nil {
		items = []T{}
	}
	return &listAnswer[T]{List[T]{items}}
}

// seen gives those items of a list that the user may see.
func seen[T any](items []T, err error, may func(*T) bool) (*listAnswer[T], error) {
	if err != nil {
		return nil, err
	}
	return listOf(slices.DeleteFunc(items, func(i T) bool { return !may(&i) })), nil
}

// Who tells a user about themselves.
type Who struct {
	User   string       `json:"user"`
	Token  string       `json:"token,omitempty" doc:"Name of the access token used."`
	Grants []auth.Grant `json:"grants"`
	Scopes []auth.Scope `json:"scopes" doc:"Scopes the user has in at least one place."`
	Site   string       `json:"site"`
	Tier   wire.Tier    `json:"role" doc:"root or cluster."`
}

// RoleView is a role with its scopes.
type RoleView struct {
	Role   auth.Role    `json:"role"`
	Scopes []auth.Scope `json:"scopes" doc:"Scopes of the role."`
}

// NewAccessToken is an access token with its text, which is shown once.
type NewAccessToken struct {
	auth.AccessToken
	Text string `json:"text" doc:"The token. It is not shown again."`
}

// tokensAnswer is a pair of tokens, the second of which may be in a cookie.
type tokensAnswer struct {
	SetCookie string `header:"Set-Cookie"`
	Body      auth.Tokens
}

type loggedOut struct {
	SetCookie string `header:"Set-Cookie"`
}

func (h *Handler) tokensAnswer(ctx context.Context, t auth.Tokens, cookie bool) *tokensAnswer {
	a := &tokensAnswer{Body: t}
	if cookie && t.Refresh != "" { // empty: another tab has refreshed a moment ago, and has the newer one
		a.SetCookie, a.Body.Refresh = h.sessionCookie(callOf(ctx), t.Refresh), ""
	}
	return a
}

func (h *Handler) addAuth() {
	type loginIn struct {
		Body struct {
			User     string `json:"user" maxLength:"63"`
			Password string `json:"password" maxLength:"1024"`
			OTP      string `json:"otp,omitempty" maxLength:"64" doc:"One-time code or recovery code. A refusal for want of one names this field."`
			Cookie   bool   `json:"cookie,omitempty" doc:"For browsers: set the refresh token as a cookie that scripts cannot read, instead of returning it."`
		}
	}
	addBare(h, operation{ID: opLogin, Method: http.MethodPost, Path: "/v1/auth/login", Scope: auth.ScopePublic, Object: objNone, Tag: "login",
		Summary: "Log in with user name and password.", Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *loginIn) (*tokensAnswer, error) {
			callOf(ctx).object, callOf(ctx).guess = in.Body.User, true
			if in.Body.Cookie && callOf(ctx).foreign {
				return nil, foreignPage()
			}
			t, err := h.opt.People.Login(ctx, auth.Credentials{User: in.Body.User, Password: in.Body.Password, Code: in.Body.OTP,
				Addr: addressOf(ctx)})
			return h.tokensAnswer(ctx, t, in.Body.Cookie), err
		})
	type refreshIn struct {
		Cookies string `header:"Cookie" maxLength:"8192" doc:"A browser's cookies. The refresh token is read from them if the body has none."`
		Body    struct {
			Refresh string `json:"refresh,omitempty" maxLength:"256"`
		}
	}
	addBare(h, operation{ID: "refresh", Method: http.MethodPost, Path: "/v1/auth/refresh", Scope: auth.ScopePublic, Object: objNone,
		Tag: "login", Summary: "Exchange a refresh token for a new pair of tokens."},
		func(ctx context.Context, _ *auth.Principal, in *refreshIn) (*tokensAnswer, error) {
			refresh, cookie, err := h.refreshOf(in.Body.Refresh, in.Cookies)
			if cookie && callOf(ctx).foreign {
				err = foreignPage()
			}
			if err != nil {
				return nil, err
			}
			t, err := h.opt.People.Refresh(ctx, refresh, addressOf(ctx))
			return h.tokensAnswer(ctx, t, cookie), err
		})
	addBare(h, operation{ID: "logout", Method: http.MethodPost, Path: "/v1/auth/logout", Scope: auth.ScopeSelf, Object: objNone, Tag: "login",
		Summary: "End the session and revoke its tokens.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, _ *none) (*loggedOut, error) {
			return &loggedOut{h.sessionCookie(callOf(ctx), "")}, h.opt.People.Logout(ctx, who)
		})
	add(h, operation{ID: "whoami", Method: http.MethodGet, Path: "/v1/auth/whoami", Scope: auth.ScopeSelf, Object: objNone, Tag: "login",
		Summary: "Show the current user and permissions."},
		func(ctx context.Context, who *auth.Principal, _ *none) (*answer[Who], error) {
			w := Who{User: who.User, Token: who.Token, Grants: who.Grants, Scopes: []auth.Scope{}, Site: h.opt.Backend.Name(),
				Tier: h.opt.Backend.Tier()}
			for _, s := range auth.Scopes() {
				if who.Somewhere(s) {
					w.Scopes = append(w.Scopes, s)
				}
			}
			return &answer[Who]{w}, nil
		})
	add(h, operation{ID: "list-roles", Method: http.MethodGet, Path: "/v1/roles", Scope: auth.ScopeSelf, Object: objNone, Tag: "login",
		Summary: "List the roles and their permissions."},
		func(context.Context, *auth.Principal, *none) (*listAnswer[RoleView], error) {
			var out []RoleView
			for _, r := range auth.Roles() {
				v := RoleView{Role: r, Scopes: []auth.Scope{}}
				for _, s := range auth.Scopes() {
					if r.Has(s) {
						v.Scopes = append(v.Scopes, s)
					}
				}
				out = append(out, v)
			}
			return listOf(out), nil
		})
	type passwordIn struct {
		Body struct {
			Old string `json:"old" maxLength:"1024"`
			New string `json:"new" maxLength:"1024"`
		}
	}
	addBare(h, operation{ID: "change-password", Method: http.MethodPost, Path: "/v1/auth/password", Scope: auth.ScopeSelf, Object: objNone,
		Tag: "login", Summary: "Change your own password; your other sessions end.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *passwordIn) (*none, error) {
			return nil, h.opt.People.ChangePassword(ctx, who, in.Body.Old, in.Body.New, addressOf(ctx))
		})

	type tokensIn struct {
		User string `query:"user" doc:"List the tokens of another user, or of all users with *; requires users:admin."`
	}
	add(h, operation{ID: "list-access-tokens", Method: http.MethodGet, Path: "/v1/access-tokens", Scope: auth.ScopeSelf, Object: objNone,
		Tag: "access tokens", Summary: "List access tokens."},
		func(ctx context.Context, who *auth.Principal, in *tokensIn) (*listAnswer[auth.AccessToken], error) {
			user := in.User
			if user == "" {
				user = who.User
			}
			if user != who.User && !who.May(auth.ScopeUsersAdmin, "", h.cluster()) {
				return nil, forbidden(who, auth.ScopeUsersAdmin)
			}
			if user == "*" {
				user = ""
			}
			return listOf(h.opt.People.AccessTokens(user)), nil
		})
	type tokenIn struct {
		Body struct {
			Name   string        `json:"name" maxLength:"63"`
			TTL    spec.Duration `json:"ttl,omitempty" doc:"Lifetime. Default: until it is deleted."`
			Scopes []auth.Scope  `json:"scopes,omitempty" maxItems:"64" doc:"Scopes to limit the token to. Default: all of the user's."`
			User   string        `json:"user,omitempty" maxLength:"63" doc:"User to create it for, if not yourself; requires users:admin."`
		}
	}
	add(h, operation{ID: "create-access-token", Method: http.MethodPost, Path: "/v1/access-tokens", Scope: auth.ScopeSelf, Object: objNone,
		Tag: "access tokens", Summary: "Create an access token for a program.", Status: http.StatusCreated, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *tokenIn) (*answer[NewAccessToken], error) {
			callOf(ctx).object = in.Body.Name
			user := in.Body.User
			if user == "" {
				user = who.User
			}
			switch {
			case who.Token != "":
				return nil, skerry.Errorf(skerry.CodeForbidden, "an access token cannot create another one").
					WithHint("log in with a password first")
			case user != who.User && !who.May(auth.ScopeUsersAdmin, "", h.cluster()):
				return nil, forbidden(who, auth.ScopeUsersAdmin)
			}
			text, t, err := h.opt.People.CreateAccessToken(ctx, user,
				auth.AccessTokenOptions{Name: in.Body.Name, TTL: time.Duration(in.Body.TTL), Scopes: in.Body.Scopes})
			return &answer[NewAccessToken]{NewAccessToken{t, text}}, err
		})
	type idIn struct {
		ID string `path:"id" maxLength:"63" doc:"ID of a token, or the name of one of your own."`
	}
	addBare(h, operation{ID: "delete-access-token", Method: http.MethodDelete, Path: "/v1/access-tokens/{id}", Scope: auth.ScopeSelf,
		Object: objNone, Tag: "access tokens", Summary: "Delete an access token.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *idIn) (*none, error) {
			if len(who.Only) > 0 && in.ID != who.Token {
				return nil, skerry.Errorf(skerry.CodeForbidden, "an access token that is limited to scopes cannot delete others").
					WithHint("log in with a password first")
			}
			err := h.opt.People.DeleteAccessToken(ctx, who.User, in.ID)
			if err != nil && skerry.AsError(err).Code == skerry.CodeNotFound && who.May(auth.ScopeUsersAdmin, "", h.cluster()) {
				err = h.opt.People.DeleteAccessToken(ctx, "", in.ID)
			}
			return nil, err
		})
}

type addressKey struct{}

// addressOf gives the address that a request came from.
func addressOf(ctx context.Context) string {
	a, _ := ctx.Value(addressKey{}).(string)
	return a
}

func (h *Handler) addUsers() {
	add(h, operation{ID: "list-users", Method: http.MethodGet, Path: "/v1/users", Scope: auth.ScopeUsersAdmin, Object: objSite, Tag: "users",
		Summary: "List the users."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[auth.User], error) {
			return listOf(h.opt.People.Users()), nil
		})
	type createIn struct {
		Body struct {
			Name     string       `json:"name" maxLength:"63"`
			Password string       `json:"password" maxLength:"1024"`
			Grants   []auth.Grant `json:"grants,omitempty" maxItems:"256"`
		}
	}
	add(h, operation{ID: "create-user", Method: http.MethodPost, Path: "/v1/users", Scope: auth.ScopeUsersAdmin, Object: objSite, Tag: "users",
		Summary: "Create a user.",
		Status:  http.StatusCreated, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *createIn) (*answer[auth.User], error) {
			callOf(ctx).object = in.Body.Name
			u, err := h.opt.People.CreateUser(ctx, auth.NewUser{Name: in.Body.Name, Password: in.Body.Password, Grants: in.Body.Grants,
				By: who.User})
			return &answer[auth.User]{u}, err
		})
	type UserPath struct {
		User string `path:"user" maxLength:"63"`
	}
	add(h, operation{ID: "get-user", Method: http.MethodGet, Path: "/v1/users/{user}",
		Scope: auth.ScopeUsersAdmin, Object: objSite, Tag: "users",
		Summary: "Show a user."},
		func(ctx context.Context, _ *auth.Principal, in *UserPath) (*answer[auth.User], error) {
			u, err := h.opt.People.User(in.User)
			return &answer[auth.User]{u}, err
		})
	type changeIn struct {
		UserPath
		Body UserPatch
	}
	add(h, operation{ID: "change-user", Method: http.MethodPatch, Path: "/v1/users/{user}", Scope: auth.ScopeUsersAdmin, Object: objSite,
		Tag: "users", Summary: "Change a user's password or grants, or disable or enable the user.", Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *changeIn) (*answer[auth.User], error) {
			u, err := h.opt.People.ChangeUser(ctx, in.User, auth.UserChange{Password: in.Body.Password, Grants: in.Body.Grants,
				Disabled: in.Body.Disabled})
			return &answer[auth.User]{u}, err
		})
	addBare(h, operation{ID: "delete-user", Method: http.MethodDelete, Path: "/v1/users/{user}", Scope: auth.ScopeUsersAdmin, Object: objSite,
		Tag: "users", Summary: "Delete a user together with all sessions and access tokens.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *UserPath) (*none, error) {
			return nil, h.opt.People.DeleteUser(ctx, in.User)
		})
}

// UserPatch says what of a user to change; what is left out stays.
type UserPatch struct {
	Password *string       `json:"password,omitempty" maxLength:"1024"`
	Grants   *[]auth.Grant `json:"grants,omitempty" doc:"New list of grants, replacing the old one."`
	Disabled *bool         `json:"disabled,omitempty"`
}
