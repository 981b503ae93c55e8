//go:build unix

package testserver

import (
	"net"
	"strconv"
)

// TLS has servers use TLS with clients and with one another, and require certificates. The
// test itself can reach them without TLS, at [Redis.Addr].
type TLS struct {
	// Cert and Key are the files of a certificate for 127.0.0.1, for servers and clients,
	// and of its key; CA is the file of the authority for all certificates.
	Cert, Key, CA string
}

// args returns the arguments of a server that uses TLS at a port.
func (f TLS) args(port int) []string {
	if f == (TLS{}) {
		return nil
	}
	return []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-cert-file", f.CA,
		"--tls-auth-clients", "yes", "--tls-replication", "yes",
	}
}

// own returns the port at which other servers find this one.
func (r *Redis) own() int {
	if r.tlsPort != 0 {
		return r.tlsPort
	}
	return r.port
}

func (r *Redis) ownAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.own())) }

// scheme returns the scheme of the server's URL.
func (r *Redis) scheme() string {
	if r.tlsPort != 0 {
		return "rediss"
	}
	return "redis"
}

// TLSURL returns rediss://host:port.
func (r *Redis) TLSURL() string { return "rediss://" + r.ownAddr() }
