package app

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// A secretFile is a file that nobody but the server should be able to read.
type secretFile struct{ setting, name string }

// secretFiles returns those that the options name.
func (o *Options) secretFiles() []secretFile {
	var named []secretFile
	for _, f := range []secretFile{
		{"store password file", o.StorePasswords.File},
		{"store sentinel password file", o.StorePasswords.SentinelFile},
		{"store secret file", o.StoreSecretFile},
		{"store tls key", o.StoreTLS.Key},
		{"http token file", o.HTTPTokenFile},
		{"http tls key", o.HTTPTLS.Key},
		{"grpc token file", o.GRPCTokenFile},
		{"grpc tls key", o.GRPCTLS.Key},
		{"resp password file", o.RESPPasswordFile},
		{"resp tls key", o.RESPTLS.Key},
		{"admin token file", o.Admin.TokenFile},
		{"admin tls key", o.Admin.TLS.Key},
	} {
		if f.name != "" {
			named = append(named, f)
		}
	}
	return named
}

// others are the permissions that every user of a host has.
const others = 0o007

// warnOfOpenFiles logs which files with secrets every user of the host has permissions
// for. That stops nothing: mounts of Kubernetes are so unless they are told otherwise.
func (o *Options) warnOfOpenFiles(ctx context.Context) {
	if runtime.GOOS == "windows" {
		return // its permissions are not these
	}
	for _, f := range o.secretFiles() {
		info, err := os.Stat(f.name)
		if err != nil || info.Mode().Perm()&others == 0 {
			continue // one that cannot be read has been told by who needs it
		}
		o.Logger.WarnContext(ctx, "a file with a secret is open to every user of this host", "setting", f.setting, "file", f.name,
			"mode", fmt.Sprintf("%04o", info.Mode().Perm()), "want", "no permissions for others, such as 0600 or 0640")
	}
}
