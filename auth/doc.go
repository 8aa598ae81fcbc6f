// Package auth says who may do what: the site's certificate authority with join tokens and enrolled children (pki, token,
// authority, enrol, member), and the people who use the API. It owns the records of both in the store. It knows nothing of
// what a child runs or of connections beyond the join protocol. Servers import it; cores never do.
package auth
