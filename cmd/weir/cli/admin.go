package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server"
)

// adminFlags are the flags of the listener for administrators.
type adminFlags struct {
	address, token         string
	cert, certKey, clients string
}

func (f *adminFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "admin", server.DefaultAdmin, "address for administrators, or off; one that others reach needs a token or client certificates")
	flags.StringVar(&f.token, "admin-token-file", "", "file with the token that administrators have to give")
	flags.StringVar(&f.cert, "admin-tls-cert", "", "certificate of the admin listener, PEM")
	flags.StringVar(&f.certKey, "admin-tls-key", "", "its key, PEM")
	flags.StringVar(&f.clients, "admin-tls-client-ca", "", "who signs the certificates that administrators have to show, PEM")
}

func (f *adminFlags) options() server.AdminOptions {
	return server.AdminOptions{Address: f.address, TokenFile: f.token, CertFile: f.cert, KeyFile: f.certKey, ClientCAFile: f.clients}
}
