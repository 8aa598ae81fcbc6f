package api

import (
	"context"
	"net/http"

	"skerry.dev/skerry/auth"
)

// RecoveryCodes work once each in place of a one-time code.
type RecoveryCodes struct {
	Codes []string `json:"codes" doc:"Keep them: they are not shown again."`
}

func (h *Handler) addTOTP() {
	type enrolTOTPIn struct {
		Body struct {
			Password string `json:"password" maxLength:"1024"`
		}
	}
	add(h, operation{ID: "enrol-totp", Method: http.MethodPost, Path: "/v1/auth/totp", Scope: auth.ScopeSelf, Object: objNone, Tag: "login",
		Summary: "Create a secret for an authenticator app. Logins ask for its codes once the first one is confirmed.",
		Status:  http.StatusCreated, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *enrolTOTPIn) (*answer[auth.TOTPSecret], error) {
			s, err := h.opt.People.EnrolTOTP(ctx, who, in.Body.Password, addressOf(ctx))
			return &answer[auth.TOTPSecret]{s}, err
		})
	type confirmTOTPIn struct {
		Body struct {
			OTP string `json:"otp" maxLength:"64" doc:"What the app shows."`
		}
	}
	add(h, operation{ID: "confirm-totp", Method: http.MethodPost, Path: "/v1/auth/totp/confirm", Scope: auth.ScopeSelf, Object: objNone,
		Tag: "login", Summary: "Enable one-time codes; your other sessions end. The answer has recovery codes.", Audit: true},
		func(ctx context.Context, who *auth.Principal, in *confirmTOTPIn) (*answer[RecoveryCodes], error) {
			codes, err := h.opt.People.ConfirmTOTP(ctx, who, in.Body.OTP, addressOf(ctx))
			return &answer[RecoveryCodes]{RecoveryCodes{codes}}, err
		})
	type removeTOTPIn struct {
		Body struct {
			Password string `json:"password" maxLength:"1024"`
			OTP      string `json:"otp,omitempty" maxLength:"64" doc:"One-time code or recovery code."`
		}
	}
	addBare(h, operation{ID: "remove-totp", Method: http.MethodPost, Path: "/v1/auth/totp/remove", Scope: auth.ScopeSelf, Object: objNone,
		Tag: "login", Summary: "Disable your one-time codes.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *removeTOTPIn) (*none, error) {
			return nil, h.opt.People.RemoveTOTP(ctx, who, in.Body.Password, in.Body.OTP, addressOf(ctx))
		})
	type userIn struct {
		User string `path:"user" maxLength:"63"`
	}
	addBare(h, operation{ID: "reset-totp", Method: http.MethodDelete, Path: "/v1/users/{user}/totp", Scope: auth.ScopeUsersAdmin,
		Object: objSite, Tag: "users", Summary: "Disable the one-time codes of a user who has lost the device.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *userIn) (*none, error) {
			return nil, h.opt.People.ResetTOTP(ctx, in.User)
		})
}
