// Oidcserver is an identity provider for tests: Zitadel's OpenID provider, as its example sets it up, with people who are in groups.
// It listens at its first argument, and lets browsers go back to the others.
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
)

// users are who may log in, by what the provider calls them.
type users map[string]*storage.User

func (u users) GetUserByID(id string) *storage.User { return u[id] }
func (u users) ExampleClientID() string             { return "service" }
func (u users) GetUserByUsername(name string) *storage.User {
	for _, p := range u {
		if p.Username == name {
			return p
		}
	}
	return nil
}

// store adds groups to what it says of people, by what it calls them.
type store struct {
	*storage.Storage
	groups map[string][]string
}

func (s store) SetUserinfoFromToken(ctx context.Context, about *oidc.UserInfo, token, subject, origin string) error {
	if err := s.Storage.SetUserinfoFromToken(ctx, about, token, subject, origin); err != nil {
		return err
	}
	about.AppendClaims("groups", s.groups[about.Subject])
	return nil
}

func main() {
	addr := os.Args[1]
	storage.RegisterClients(storage.NativeClient("skerry", os.Args[2:]...))
	s := store{storage.NewStorage(users{
		"1": {ID: "1", Username: "ada", Password: "of the sea"},
		"2": {ID: "2", Username: "bob", Password: "of the land"},
	}), map[string][]string{"1": {"boats", "sea"}, "2": {"land"}}}
	handler := exampleop.SetupServer("http://"+addr, s, slog.New(slog.NewTextHandler(os.Stderr, nil)), false)
	log.Fatal(http.ListenAndServe(addr, handler))
}
