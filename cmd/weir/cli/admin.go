package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server"
)

func defineAdmin(flags *pflag.FlagSet, o *server.AdminOptions) {
	flags.StringVar(&o.Address, "admin", server.DefaultAdmin, "address for administrators, or off; one that others reach needs a token or client certificates")
	flags.StringVar(&o.TokenFile, "admin-token-file", "", "file of tokens, one on each line; administrators have to give one of them")
	defineTLS(flags, "admin", &o.TLS)
}
