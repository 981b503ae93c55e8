package cli

import (
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

var adminLine = regexp.MustCompile(`(?m)^admin (\S+)\n`)

func (s *session) admin(ts *testscript.TestScript, _ []string) {
	address := s.await(ts, &s.stdout, adminLine)[1]
	ts.Setenv("ADMIN", address)
	ts.Setenv("WEIR_ADMIN", address)
}
