package auth

import "crypto"

// SiteRequest is what a cluster with that device key sends to have its CA certified.
func (a *Authority) SiteRequest(device crypto.PublicKey) ([]byte, error) { return a.ca.request(device) }
