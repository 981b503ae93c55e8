package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
)

// defineTLS defines the flags of a listener's TLS, "http-tls-cert" and so on.
func defineTLS(flags *pflag.FlagSet, listener string, t *app.TLS) {
	flags.StringVar(&t.Cert, listener+"-tls-cert", "", "file with the "+listener+" listener's certificate; it then speaks TLS only. New files hold from the next connection on")
	flags.StringVar(&t.Key, listener+"-tls-key", "", "file with the key to the certificate")
	flags.StringVar(&t.ClientCA, listener+"-tls-client-ca", "", "file with the authorities that sign the certificates which clients then have to show")
	flags.StringVar(&t.ClientSAN, listener+"-tls-client-san", "", "DNS name that a client's certificate has to be for")
}

// defineStoreTLS defines the flags of connections to a store by TLS.
func defineStoreTLS(flags *pflag.FlagSet, t *app.StoreTLS) {
	flags.StringVar(&t.CA, "store-tls-ca", "", "file with authorities to trust besides the host's, for rediss://…")
	flags.StringVar(&t.Cert, "store-tls-cert", "", "file with the certificate to show to the store")
	flags.StringVar(&t.Key, "store-tls-key", "", "file with the key to it")
	flags.BoolVar(&t.AnyHost, "store-tls-any-host", false, "take a genuine certificate of the store that is for another host")
}
