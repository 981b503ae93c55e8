package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	root "github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
)

const (
	openrestyExample = "../../../examples/openresty"
	// debianModules is where Debian keeps what makes its nginx one with Lua.
	debianModules = "/usr/lib/nginx/modules/"
	// gatewayKey is whom the example's gateway charges for the tests' requests.
	gatewayKey = "gateway:127.0.0.1"
)

// TestOpenResty has nginx ask the script by itself, over a Unix socket, while a
// limiter in Go asks about the same keys: both see what the other has charged.
func TestOpenResty(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][]string{
		"one limit":  {"20/day"},
		"several":    {"burst=20/day burst 12", "log=15/day sliding_log", "window=40/week fixed_window"},
		"other ones": {"30/day rolling_window", "25/day sliding_counter", "14/day token_bucket", "40/year charge_refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newGateway(t, limits).compare()
		})
	}
}

// A gateway is the example's nginx, and a limiter in Go beside it.
type gateway struct {
	site
	limiter *root.Limiter
	store   *testserver.Redis
	app     *application
}

func newGateway(t *testing.T, limits []string) *gateway {
	t.Helper()
	program, modules := requireOpenResty(t)
	prefix := t.TempDir()
	g := &gateway{app: newApplication(t)}
	g.store = testserver.StartRedis(t, "--unixsocket", filepath.Join(prefix, "redis.sock"))
	client := redis.NewClient(&redis.Options{Addr: g.store.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g.limiter, err = root.NewLimiter(store, "test", parsed(t, limits)...); err != nil {
		t.Fatal(err)
	}
	writeScript(t, prefix, limits)
	if err := os.CopyFS(filepath.Join(prefix, "lua"), os.DirFS(filepath.Join(openrestyExample, "lua"))); err != nil {
		t.Fatal(err)
	}
	g.site = site{t: t, client: newClient(t), url: "http://" + startOpenResty(t, program, modules, prefix, g.app.addr)}
	return g
}

// parsed reads limits as "weir script --limit" does.
func parsed(t *testing.T, texts []string) []root.Limit {
	t.Helper()
	var limits []root.Limit
	for _, text := range texts {
		name, rest, named := strings.Cut(text, "=")
		if !named {
			name, rest = "", text
		}
		limit, err := root.ParseLimit(rest)
		if err != nil {
			t.Fatal(err)
		}
		limit.Name = name
		limits = append(limits, limit)
	}
	return limits
}

// writeScript does what the example's README says.
func writeScript(t *testing.T, dir string, limits []string) {
	t.Helper()
	weir, err := binary()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	args := []string{"script"}
	for _, limit := range limits {
		args = append(args, "--limit", limit)
	}
	for file, args := range map[string][]string{"script.lua": {"script"}, "recipe.json": args} {
		text, err := exec.Command(weir, args...).Output()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// requireOpenResty returns an nginx with Lua, and what its configuration has to
// begin with.
func requireOpenResty(t *testing.T) (program, modules string) {
	t.Helper()
	if path, err := exec.LookPath("openresty"); err == nil {
		return path, ""
	}
	for _, module := range []string{"ndk_http_module.so", "ngx_http_lua_module.so"} {
		modules += "load_module " + debianModules + module + ";\n"
	}
	_, err := os.Stat(debianModules + "ngx_http_lua_module.so")
	if cjson, _ := filepath.Glob("/usr/lib/*/lua/5.1/cjson.so"); err != nil || len(cjson) == 0 {
		// Skips the test, or fails it where nginx with Lua is required.
		return testserver.Require(t, "openresty"), ""
	}
	return testserver.Require(t, "nginx"), modules
}

func startOpenResty(t *testing.T, program, modules, prefix, appAddr string) string {
	t.Helper()
	addr := freeAddr(t)
	conf, err := os.ReadFile(filepath.Join(openrestyExample, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	text := modules + string(conf)
	for old, replacement := range map[string]string{
		"listen 127.0.0.1:8000;": "listen " + addr + ";",
		"server 127.0.0.1:3000;": "server " + appAddr + ";",
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("nginx.conf does not contain %q", old)
		}
		text = strings.ReplaceAll(text, old, replacement)
	}
	longer(t, filepath.Join(prefix, "lua", "gateway.lua"))
	path := filepath.Join(prefix, "nginx.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	global := "daemon off;"
	if os.Getuid() == 0 {
		global += " user root;" // nobody else may use the tests' folders
	}
	p := start(t, program, "-p", prefix, "-c", path, "-e", "error.log", "-g", global)
	t.Cleanup(func() { showLog(t, filepath.Join(prefix, "error.log")) })
	await(t, p, addr)
	return addr
}

// longer lets a gateway wait longer: on a busy machine an answer may take its
// time, and a request that passes unlimited would spoil the count.
func longer(t *testing.T, path string) {
	t.Helper()
	const short, long = "connect_ms = 250, send_ms = 250, read_ms = 250", "connect_ms = 9000, send_ms = 9000, read_ms = 9000"
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), short) {
		t.Fatalf("%s: %v, or no %q", path, err, short)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), short, long, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare asks on both sides, in no order, until it is refused, and demands that
// both see each other's charges.
func (g *gateway) compare() {
	g.t.Helper()
	passed, refused := 0, 0
	for refused < 5 {
		want := g.left()
		allowed := false
		if rand.IntN(3) == 0 {
			d, err := g.limiter.Allow(context.Background(), gatewayKey)
			if err != nil {
				g.t.Fatal(err)
			}
			allowed = d.Allowed()
		} else if allowed = g.ask(); allowed {
			passed++
		}
		if allowed == slices.Contains(want, 0) {
			g.t.Fatalf("allowed %v where %v remained", allowed, want)
		}
		for i := range want {
			if allowed {
				want[i]--
			}
		}
		if diff := cmp.Diff(want, g.left()); diff != "" {
			g.t.Fatalf("remaining after allowed %v (-want +got):\n%s", allowed, diff)
		}
		if !allowed {
			refused++
		}
	}
	if n := int(g.app.asked.Load()); n != passed || passed == 0 {
		g.t.Errorf("%d requests reached the application, want %d", n, passed)
	}
	g.elsewhere(context.Background())
}

// left is what remains under each limit.
func (g *gateway) left() []int64 {
	g.t.Helper()
	act := g.limiter.Act(root.KindTake, gatewayKey, 0)
	if g.limiter.Take(context.Background(), []*root.Act{act}); act.Err != nil {
		g.t.Fatal(act.Err)
	}
	var left []int64
	for _, d := range act.Decisions {
		left = append(left, d.Remaining)
	}
	return left
}

// ask sends a request and compares its headers with what Go finds.
func (g *gateway) ask() (allowed bool) {
	g.t.Helper()
	r := g.get("/")
	d, err := g.limiter.Peek(context.Background(), gatewayKey)
	if err != nil {
		g.t.Fatal(err)
	}
	if r.status == http.StatusTooManyRequests {
		d, err = g.limiter.Allow(context.Background(), gatewayKey)
		if err != nil || d.Allowed() {
			g.t.Fatalf("nginx refuses what Go does not: %+v, %v", d, err)
		}
		g.near(r, "Retry-After", d.RetryAfter)
		if r.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(r.body, `"status":429`) {
			g.t.Errorf("a refusal is %s: %q", r.header.Get("Content-Type"), r.body)
		}
	}
	g.near(r, "X-RateLimit-Reset", d.ResetAfter)
	if said := r.header.Get("X-RateLimit-Remaining"); said != strconv.FormatInt(d.Remaining, 10) {
		g.t.Errorf("nginx says that %q remain, Go %d", said, d.Remaining)
	}
	return r.status == http.StatusOK
}

// near demands that a header in whole seconds says what Go found a moment later.
func (g *gateway) near(r response, name string, d time.Duration) {
	g.t.Helper()
	seconds, err := strconv.ParseInt(r.header.Get(name), 10, 64)
	if off := time.Duration(seconds)*time.Second - d; err != nil || off < 0 || off > 10*time.Second {
		g.t.Errorf("%s is %q, Go says %v", name, r.header.Get(name), d)
	}
}

// elsewhere is what becomes of a gateway whose Redis forgets, and goes away.
func (g *gateway) elsewhere(ctx context.Context) {
	g.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: g.store.Addr()})
	defer client.Close()
	for what, forget := range map[string]func(context.Context) error{
		"the script": func(ctx context.Context) error { return client.ScriptFlush(ctx).Err() },
		"everything": func(ctx context.Context) error { return client.FlushAll(ctx).Err() },
	} {
		if err := forget(ctx); err != nil {
			g.t.Fatal(err)
		}
		if r := g.get("/"); r.header.Get("X-RateLimit-Remaining") == "" || (what == "everything" && r.status != http.StatusOK) {
			g.t.Errorf("after Redis has forgotten %s: %d %v", what, r.status, r.header)
		}
	}
	g.store.Kill()
	if r := g.get("/"); r.status != http.StatusOK || r.header.Get("X-RateLimit-Remaining") != "" {
		g.t.Errorf("without Redis: %d %v, want 200 and no word about limits", r.status, fmt.Sprint(r.header))
	}
}
