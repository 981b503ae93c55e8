package weir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirlimit/weir"

// A listed package is what go list tells of one. Its own module's packages are
// named by their folder, the root's by a dot.
type listed struct {
	ImportPath string
	Imports    []string // by its own files, tests aside
	Deps       []string // by these, and so on
}

// A pattern names a folder, "folder/..." one with all below it, "..." every one,
// and what has a dot in its first element a foreign module with all its packages.
type patterns []string

func (p patterns) match(name string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		root, deep := strings.CutSuffix(pattern, "/...")
		return pattern == "..." || name == root || (deep || foreign(pattern)) && strings.HasPrefix(name, root+"/")
	})
}

func foreign(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return name != "." && strings.Contains(first, ".")
}

// only lists the rooms that import nothing but a few packages.
var only = map[string]patterns{
	".":             {"internal/algo", "std"},
	"internal/algo": {"cmp", "embed", "fmt", "math", "math/bits", "slices", "strings", "time"},
	"sim":           {".", "memstore", "internal/algo", "sim/report", "std"},
	"sim/accesslog": {".", "std"},
	"sim/replay":    {".", "memstore", "sim/accesslog", "sim/report", "std"},
	"server/internal/frames": {"golang.org/x/net", "std"},
	"sim/report":    {"github.com/guptarohit/asciigraph", "internal/uplot", "std"},
}

var (
	stores     = patterns{"memstore/...", "redisstore/..."}
	decorators = patterns{"coalesce/...", "denycache/...", "distinct/...", "fallback/...", "lease/...", "observe/...", "override/...", "shadow/...", "trace/..."}
	doors      = patterns{"clientip/...", "weirhttp/...", "weirgrpc/...", "internal/gate/..."}
	process    = patterns{"server/...", "cmd/..."}
	frontends  = patterns{"server/internal/rls/...", "server/internal/httpapi/...", "server/internal/resp/...", "server/internal/admin/...", "server/internal/dashboard/..."}
	rulesRoom  = patterns{"server/internal/rules/..."}
	settings   = patterns{"server/internal/config/..."}
	wiring     = patterns{"server", "cmd/..."}
)

// A ban keeps rooms from depending on others, however long the way.
type ban struct {
	why    string
	from   patterns
	except patterns // of from
	on     patterns
}

var bans = []ban{
	{"a store never depends on a decorator", stores, nil, slices.Concat(decorators, patterns{"stack/..."})},
	{"a decorator never depends on what orders decorators", decorators, nil, patterns{"stack/..."}},
	{"a door never depends on what decides", doors, nil, slices.Concat(stores, decorators, patterns{"stack/..."})},
	{"what decides never depends on a door", slices.Concat(stores, decorators), nil, doors},
	{"the library never depends on the process", patterns{"..."}, process, process},
	{"settings never depend on what they set", settings, nil, slices.Concat(rulesRoom, frontends, wiring)},
	{"rules never depend on who asks", rulesRoom, nil, slices.Concat(frontends, wiring)},
	{"a front-end never depends on the process around it", frontends, nil, wiring},
	{"the process never depends on its command", patterns{"server/..."}, nil, patterns{"cmd/..."}},
	{
		"YAML, Prometheus and commands are the process's",
		patterns{"..."},
		process,
		patterns{"go.yaml.in/yaml", "github.com/prometheus", "github.com/spf13/cobra", "github.com/spf13/pflag"},
	},
	{
		"the library makes spans with OpenTelemetry's interface, the process sends them",
		patterns{"..."},
		process,
		patterns{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto"},
	},
	{
		"gRPC is the process's, weirgrpc's and that of clients of the process",
		patterns{"..."},
		slices.Concat(process, patterns{"weirgrpc/...", "internal/client/..."}),
		patterns{"google.golang.org/grpc"},
	},
}

// layout returns every offence against the rules above.
func layout(pkgs []listed) []string {
	var found []string
	for _, p := range pkgs {
		found = append(found, strangers(p)...)
		found = append(found, banned(p)...)
		found = append(found, several(p)...)
	}
	return found
}

// strangers finds imports that are not on a room's list.
func strangers(p listed) []string {
	allowed, ok := only[p.ImportPath]
	if !ok {
		return nil
	}
	var found []string
	for _, dep := range p.Imports {
		std := allowed.match("std") && !foreign(dep) && !own(dep)
		if !std && !allowed.match(local(dep)) {
			found = append(found, fmt.Sprintf("%s imports %s: it may import %v", p.ImportPath, local(dep), allowed))
		}
	}
	return found
}

func banned(p listed) []string {
	var found []string
	for _, b := range bans {
		if !b.from.match(p.ImportPath) || b.except.match(p.ImportPath) {
			continue
		}
		for _, dep := range p.Deps {
			if (own(dep) || foreign(dep)) && b.on.match(local(dep)) {
				found = append(found, fmt.Sprintf("%s depends on %s: %s", p.ImportPath, local(dep), b.why))
			}
		}
	}
	return found
}

// several finds decorators that know another one, and rooms that know more than
// one without being where they are put together.
func several(p listed) []string {
	if slices.Concat(process, patterns{"stack/..."}).match(p.ImportPath) {
		return nil
	}
	var known []string
	if decorators.match(p.ImportPath) {
		known = append(known, room(p.ImportPath))
	}
	for _, dep := range p.Imports {
		if own(dep) && decorators.match(local(dep)) && !slices.Contains(known, room(local(dep))) {
			known = append(known, room(local(dep)))
		}
	}
	if len(known) < 2 {
		return nil
	}
	return []string{fmt.Sprintf("%s knows the decorators %v: only stack and the server put several together", p.ImportPath, known)}
}

func room(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

func own(name string) bool { return name == module || strings.HasPrefix(name, module+"/") }

// local is a package's name as the rules spell it.
func local(name string) string {
	if name == module {
		return "."
	}
	return strings.TrimPrefix(name, module+"/")
}

func TestLayout(t *testing.T) {
	t.Parallel()
	pkgs := list(t)
	if len(pkgs) < 3 {
		t.Fatalf("go list named %d packages", len(pkgs))
	}
	for _, offence := range layout(pkgs) {
		t.Error(offence)
	}
}

// list asks the go command for the module's packages.
func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		p.ImportPath = local(p.ImportPath)
		pkgs = append(pkgs, p)
	}
}

func TestLayoutCatches(t *testing.T) {
	t.Parallel()
	in := func(name string) string { return path.Join(module, name) }
	for name, tc := range map[string]struct {
		room, imports string
		offences      int
	}{
		"root, standard":            {".", "net/http", 0},
		"root, steps":               {".", in("internal/algo"), 0},
		"root, other room":          {".", in("memstore"), 1},
		"root, foreign":             {".", "github.com/redis/go-redis/v9", 1},
		"steps, allowed":            {"internal/algo", "math/bits", 0},
		"steps, standard":           {"internal/algo", "net/http", 1},
		"steps, root":               {"internal/algo", module, 1},
		"store, words":              {"memstore", module, 0},
		"store, decorator":          {"redisstore/queue", in("coalesce"), 1},
		"store, stack":              {"redisstore", in("stack"), 1},
		"decorator, store":          {"fallback", in("memstore"), 0},
		"decorator, itself":         {"fallback", in("fallback/breaker"), 0},
		"decorator, decorator":      {"fallback", in("coalesce"), 1},
		"decorator, stack":          {"lease", in("stack"), 1},
		"stack, decorator":          {"stack", in("coalesce"), 0},
		"door, address":             {"weirhttp", in("clientip"), 0},
		"door, store":               {"weirhttp", in("memstore"), 1},
		"door, stack":               {"weirgrpc", in("stack"), 1},
		"store, door":               {"redisstore", in("weirhttp"), 1},
		"front-end, address":        {"server/internal/httpapi", in("clientip"), 0},
		"library, server":           {"weirhttp", in("server/internal/rules"), 1},
		"library, YAML":             {"weirhttp", "go.yaml.in/yaml/v3", 1},
		"library, Prometheus":       {"observe", "github.com/prometheus/client_golang/prometheus", 1},
		"library, gRPC":             {"weirhttp", "google.golang.org/grpc", 1},
		"weirgrpc, gRPC":            {"weirgrpc", "google.golang.org/grpc", 0},
		"server, YAML":              {"server/internal/config", "go.yaml.in/yaml/v3", 0},
		"command, cobra":            {"server/internal/cli", "github.com/spf13/cobra", 0},
		"command, server":           {"server/internal/cli", in("server"), 0},
		"server, front-end":         {"server", in("server/internal/httpapi"), 0},
		"front-end, rules":          {"server/internal/httpapi", in("server/internal/rules"), 0},
		"front-end, server":         {"server/internal/httpapi", in("server"), 1},
		"rules, front-end":          {"server/internal/rules", in("server/internal/httpapi"), 1},
		"config, rules":             {"server/internal/config", in("server/internal/rules"), 1},
		"rules, config":             {"server/internal/rules", in("server/internal/config"), 0},
		"server, command":           {"server", in("server/internal/cli"), 1},
		"simulation, store":         {"sim", in("memstore"), 0},
		"simulation, rules":         {"sim/replay", in("server/internal/rules"), 2},
		"command, simulation":       {"server/internal/cli", in("sim/replay"), 0},
		"name that begins the same": {"memstorage", in("serverless"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pkg := listed{ImportPath: tc.room, Imports: []string{tc.imports}, Deps: []string{tc.imports}}
			if got := layout([]listed{pkg}); len(got) != tc.offences {
				t.Errorf("%s imports %s: %d offences, want %d: %v", tc.room, tc.imports, len(got), tc.offences, got)
			}
		})
	}
}

func TestLayoutCatchesDetours(t *testing.T) {
	t.Parallel()
	detour := listed{ImportPath: "memstore", Imports: []string{"strings"}, Deps: []string{"strings", module + "/lease"}}
	two := listed{ImportPath: "weirhttp", Imports: []string{module + "/lease", module + "/shadow"}}
	for _, pkg := range []listed{detour, two} {
		if got := layout([]listed{pkg}); len(got) != 1 {
			t.Errorf("%v: %d offences, want 1: %v", pkg, len(got), got)
		}
	}
}
