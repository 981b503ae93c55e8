// Package client asks servers for decisions, a key a call: what loads them, and
// what compares them with others, needs no more of their protocols.
package client

import "crypto/tls"

// Options are what there is to say of a server besides its address.
type Options struct {
	// Connections is how many there are at most; at least 1.
	Connections int
	// Token is what callers have to know; empty: nothing.
	Token string
	// TLS is whom to trust and what to show. Nil: for HTTP what the host trusts,
	// for gRPC no TLS.
	TLS *tls.Config
	// Domain and Entry are, for [RLS], the domain and the key of the only entry
	// of the only descriptor.
	Domain, Entry string
}

// bearer is the token as it is shown; empty without one.
func (o *Options) bearer() string {
	if o.Token == "" {
		return ""
	}
	return "Bearer " + o.Token
}
