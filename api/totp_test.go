package api_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
)

// appCode is what an authenticator app shows, or shows in the 30 seconds after that.
func appCode(t *testing.T, secret string, later int64) string {
	t.Helper()
	key, err := base32.StdEncoding.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha1.New, key)
	binary.Write(h, binary.BigEndian, time.Now().Unix()/30+later)
	sum := h.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1_000_000)
}

// TestOneTimeCodes goes the way of a user at either tier: enable, log in with a code, lose the device.
func TestOneTimeCodes(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *site{"root": newRoot, "cluster": newCluster} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			ctx, admin := t.Context(), s.admin()
			const password = "long enough for a boat"
			if _, err := admin.CreateUser(ctx, "alice", password, nil); err != nil {
				t.Fatal(err)
			}
			alice := s.client("alice", password)
			wantError := func(err error, want skerry.Code) {
				t.Helper()
				if skerry.AsError(err) == nil || skerry.AsError(err).Code != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
			_, err := alice.EnrolTOTP(ctx, "another password")
			wantError(err, skerry.CodeForbidden)
			secret, err := alice.EnrolTOTP(ctx, password)
			if err != nil {
				t.Fatal(err)
			}
			_, err = alice.ConfirmTOTP(ctx, "12345")
			wantError(err, skerry.CodeForbidden)
			recovery, err := alice.ConfirmTOTP(ctx, appCode(t, secret.Secret, 0))
			if err != nil {
				t.Fatal(err)
			}
			other := s.client("", "")
			if _, err = other.Login(ctx, "alice", password); !auth.NeedsCode(err) {
				t.Errorf("without a code: %v", err)
			}
			if _, err := other.LoginWithCode(ctx, "alice", password, appCode(t, secret.Secret, 1)); err != nil {
				t.Error(err)
			}
			if _, err := other.LoginWithCode(ctx, "alice", password, recovery.Codes[0]); err != nil {
				t.Error(err)
			}
			if u, err := admin.User(ctx, "alice"); err != nil || !u.TOTP {
				t.Errorf("%+v, %v", u, err)
			}
			wantError(alice.ResetTOTP(ctx, "alice"), skerry.CodeForbidden)
			if err := admin.ResetTOTP(ctx, "alice"); err != nil {
				t.Fatal(err)
			}
			wantError(admin.ResetTOTP(ctx, "alice"), skerry.CodeNotFound)
			s.client("alice", password)
			kept, err := admin.Audit(ctx, "", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for _, r := range kept {
				switch r.Operation {
				case "enrol-totp", "confirm-totp", "reset-totp":
					seen = append(seen, r.User+" "+r.Operation+" "+r.Object+" "+r.Result)
				}
			}
			want := []string{"alice enrol-totp  forbidden", "alice enrol-totp  ok", "alice confirm-totp  forbidden", "alice confirm-totp  ok",
				"alice reset-totp alice forbidden", "admin reset-totp alice ok", "admin reset-totp alice not-found"}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("the audit log says\n%q, want\n%q", seen, want)
			}
		})
	}
}
