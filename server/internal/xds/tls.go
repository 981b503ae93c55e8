package xds

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

// TLS secures the connection to the management server, by TLS 1.3. The files are PEM
// and are read with each connection, so that renewed certificates need no restart.
type TLS struct {
	// CA is a file with the authorities that sign the server's certificate. Empty:
	// those that the host trusts.
	CA string
	// Cert and Key are files with the certificate that Weir shows, and the key to it.
	// Both or neither.
	Cert, Key string
	// ServerName is the name that the server's certificate must be for. Empty: the
	// host of the server's address.
	ServerName string
}

// certificates reads the files of a TLS.
type certificates struct {
	TLS
	last *tls.Config // that was good
}

// latest returns the configuration of one connection. While the files are wrong, it is
// that of the last good ones, with the error.
func (c *certificates) latest() (*tls.Config, error) {
	next, err := c.read()
	if err == nil {
		c.last = next
	}
	return c.last, err
}

// read reads the files.
func (c *certificates) read() (*tls.Config, error) {
	next := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.ServerName}
	return next, settingfile.Client(next, "rules xds tls ", c.CA, c.Cert, c.Key)
}

// keepAlive finds a server that disappeared without closing the connection. Pings of
// HTTP/2 would not do: servers take frequent ones for abuse.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 5 * time.Second, Count: 4}

// connectTimeout bounds one attempt to connect.
const connectTimeout = 10 * time.Second

// dial returns a connection with the certificates as they are now. It connects with its
// first stream.
func (c *Client) dial() (*grpc.ClientConn, error) {
	secured := insecure.NewCredentials()
	if c.certs != nil {
		config, err := c.certs.latest()
		if err != nil {
			c.o.Logger.Error("the TLS files for the management server are wrong; the last good ones hold", "error", err)
		}
		secured = credentials.NewTLS(config)
	}
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: keepAlive}
	return grpc.NewClient("passthrough:///"+c.o.Server,
		grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.o.MaxMessageBytes)),
		grpc.WithDisableServiceConfig(),
	)
}
