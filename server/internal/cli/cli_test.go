package cli

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// leakChecked runs the tests and then looks for goroutines they left.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	// Most of them wait for processes.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testscript.Main(leakChecked{m}, map[string]func(){
		"weir": func() {
			os.Exit(Execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
		},
	})
}

// TestScript runs the stories in testdata/script against the real command. They
// may use:
//
//	serve ARG…           start "weir serve ARG…" and wait until it serves; $HTTP is its address
//	signal NAME          send it TERM, INT, HUP or KILL
//	exited CODE          wait until it ended with that code; its output becomes stdout and stderr
//	http STATUS METHOD PATH [BODY] [NAME:VALUE…]
//	                     call it; the status line, headers and body become stdout
//	begin METHOD PATH BODY
//	                     begin a call and return once it is being handled, its body half sent
//	refusing             wait until new connections are refused
//	finish STATUS        send the rest and wait for the answer
//	logged TEXT          wait until the server's log has it
//	admin                make $ADMIN the address of its admin listener, and $WEIR_ADMIN too
//	grpc                 make $GRPC the address of its gRPC listener, and $PID its process
//	manager              stand in for systemd: $NOTIFY_SOCKET is where it listens
//	told REGEXP…         wait until it was told this, in this order, with anything between
//	cannot, problems     exec, expecting exit code 2 or 1
//	rls DOMAIN KEY=VALUE[,KEY=VALUE]…
//	                     ask as Envoy does; the codes, limits and remainders become stdout
//	curls                run the curl lines that the server printed, as this test's own calls
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Cmds:                commands(),
	})
}

// TestScriptRedis runs the stories in testdata/redis and testdata/store, for which $REDIS is
// the address of a Redis that the other ones do not use.
func TestScriptRedis(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"testdata/redis", "testdata/store"} {
		redis := testserver.StartRedis(t)
		testscript.Run(t, testscript.Params{
			Dir:                 dir,
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Setup: func(env *testscript.Env) error {
				env.Setenv("REDIS", redis.Addr())
				return setUp(env)
			},
			Cmds: commands(),
		})
	}
}
