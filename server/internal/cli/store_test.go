package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestPasswordOnTheCommandLine: an argument with a password is warned of, without the
// password; a variable is not.
func TestPasswordOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for url, warned := range map[string]bool{
		"memory":                                         false,
		"redis://h:1/2":                                  false,
		"redis://user@h":                                 false,
		"redis://:hunter2@h":                             true,
		"redis+cluster://u:hunter2@h:1,h:2":              true,
		"redis+sentinel://main@[::1]:2":                  false,
		"redis+sentinel://u:hunter2@main@h":              true,
		"redis+sentinel://m@h?sentinel_password=hunter2": true,
	} {
		for _, given := range []bool{true, false} {
			flags := newServe().Flags()
			if err := flags.Lookup("store").Value.Set(url); err != nil {
				t.Fatal(err)
			}
			if given {
				if err := flags.Parse([]string{"--store", url}); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			warnOfPassword(flags, slog.New(slog.NewTextHandler(&log, nil)))
			if said := log.String(); (said != "") != (warned && given) || strings.Contains(said, "hunter2") {
				t.Errorf("%s, as an argument %v: %q", url, given, said)
			}
		}
	}
}
