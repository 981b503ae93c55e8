package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
)

func defineAdmin(flags *pflag.FlagSet, o *app.AdminOptions) {
	flags.StringVar(&o.Address, "admin", app.DefaultAdmin, "address for administrators, or off; one that others reach needs a token or client certificates")
	flags.StringVar(&o.TokenFile, "admin-token-file", "", "file of tokens, one on each line; administrators have to give one of them")
	defineTLS(flags, "admin", &o.TLS)
}
