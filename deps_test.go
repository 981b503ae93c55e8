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

// modules are the folders of the modules that go.work joins.
var modules = []string{".", "server", "trace", "weirgrpc", "weirprom"}

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
	".":                             {"internal/algo", "std"},
	"internal/calls":                {".", "internal/acts", "internal/deadline", "internal/outage", "std"},
	"internal/algo":                 {"cmp", "embed", "fmt", "math", "math/bits", "slices", "strings", "time"},
	"server/internal/lab/sim":       {".", "internal/engine/memengine", "internal/acts", "internal/algo", "server/internal/lab/report", "std"},
	"server/internal/lab/accesslog": {".", "std"},
	"server/internal/lab/replay":    {".", "internal/engine/memengine", "internal/algo", "server/internal/lab/accesslog", "server/internal/lab/report", "server/internal/topk", "std"},
	"server/internal/frames":        {"golang.org/x/net", "internal/logs", "std"},
	"server/internal/held":          {"std"},
	"server/internal/plainhttp":     {"internal/recorder", "server/internal/held", "std"},
	"server/internal/lab/report":    {"github.com/guptarohit/asciigraph", "std"},
}

var (
	bare       = patterns{"internal/engine/memengine", "internal/engine/redisengine"}
	stores     = patterns{"memstore", "redisstore/..."}
	layers     = patterns{"internal/layer/...", "internal/remote/...", "trace/..."}
	order      = patterns{"internal/stack/..."}
	middleware = patterns{"clientip/...", "weirhttp/...", "weirgrpc/...", "internal/gate/..."}
	program    = patterns{"server/..."}
	frontends  = patterns{
		"server/internal/rls/...", "server/internal/rlqs/...", "server/internal/httpapi/...", "server/internal/resp/...",
		"server/internal/admin/...", "server/internal/dashboard/...",
	}
	rulesRoom = patterns{"server/internal/rules/..."}
	settings  = patterns{"server/internal/config/..."}
	wiring    = patterns{"server/internal/app", "server/internal/cli/...", "server/cmd/..."}
	command   = patterns{"server/internal/cli/...", "server/cmd/..."}
	models    = patterns{"server/internal/models/..."}
	lab       = patterns{"server/internal/lab/..."}
	tests     = patterns{"internal/testing/...", "server/internal/testing/..."}
)

// A ban keeps rooms from depending on others, however long the way.
type ban struct {
	why    string
	from   patterns
	except patterns // of from
	on     patterns
}

var bans = []ban{
	{"a bare store never depends on a layer", bare, nil, slices.Concat(layers, order, patterns{"internal/calls/..."})},
	{"a layer never depends on the package that orders layers", layers, nil, order},
	{"middleware never depends on stores or layers", middleware, nil, slices.Concat(bare, stores, layers, order)},
	{"stores and layers never depend on middleware", slices.Concat(bare, stores, layers), nil, middleware},
	{"a layer never depends on a store of the library", slices.Concat(bare, layers, order), nil, stores},
	{"the program puts its own layers around bare stores", program, nil, stores},
	{"the library never depends on the program", patterns{"..."}, program, program},
	{"settings never depend on what they set", settings, nil, slices.Concat(rulesRoom, frontends, wiring)},
	{"rules never depend on front ends", rulesRoom, nil, slices.Concat(frontends, wiring)},
	{"a front end never depends on the program around it", frontends, nil, wiring},
	{"the gateway for language models is a product of its own", models, nil, frontends},
	{"only the program around it knows the gateway for language models", patterns{"..."}, slices.Concat(models, wiring), models},
	{"only commands try limits", patterns{"..."}, slices.Concat(lab, command), lab},
	{"only tests use what is for tests", patterns{"..."}, tests, tests},
	{"the server never depends on its command", patterns{"server/internal/app"}, nil, command},
	{"only the program knows YAML and commands", patterns{"..."}, program, patterns{"go.yaml.in/yaml", "github.com/spf13/cobra", "github.com/spf13/pflag"}},
	{"only weirprom and the program know Prometheus", patterns{"..."}, slices.Concat(program, patterns{"weirprom/..."}), patterns{"github.com/prometheus"}},
	{
		"the library makes spans with OpenTelemetry's interface, the program sends them",
		patterns{"..."},
		program,
		patterns{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto"},
	},
	{"only trace and the program know OpenTelemetry", patterns{"..."}, slices.Concat(program, patterns{"trace/..."}), patterns{"go.opentelemetry.io"}},
	{"only weirgrpc and the program know gRPC", patterns{"..."}, slices.Concat(program, patterns{"weirgrpc/..."}), patterns{"google.golang.org/grpc"}},
}

// vague are names that say nothing about a package.
var vague = []string{"base", "common", "helper", "helpers", "misc", "util", "utils"}

// layout returns every offence against the rules above.
func layout(pkgs []listed) []string {
	var found []string
	for _, p := range pkgs {
		found = append(found, strangers(p)...)
		found = append(found, banned(p)...)
		found = append(found, several(p)...)
		if name := path.Base(p.ImportPath); slices.Contains(vague, name) {
			found = append(found, fmt.Sprintf("%s: package %s: a name says what is inside", p.ImportPath, name))
		}
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

// several finds layers that know another one, and rooms that know more than one
// although they do not put them together.
func several(p listed) []string {
	if slices.Concat(program, order).match(p.ImportPath) {
		return nil
	}
	var known []string
	if layers.match(p.ImportPath) {
		known = append(known, room(p.ImportPath))
	}
	for _, dep := range p.Imports {
		if own(dep) && layers.match(local(dep)) && !slices.Contains(known, room(local(dep))) {
			known = append(known, room(local(dep)))
		}
	}
	if len(known) < 2 {
		return nil
	}
	return []string{fmt.Sprintf("%s knows the layers %v: only stack and the server know several", p.ImportPath, known)}
}

// room is the layer that a package belongs to.
func room(name string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "internal/layer/"), "internal/"), "/")
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

// list asks the go command for the packages of all modules.
func list(t *testing.T) []listed {
	t.Helper()
	list := []string{"list", "-json=ImportPath,Imports,Deps"}
	for _, m := range modules {
		list = append(list, "./"+m+"/...")
	}
	out, err := exec.Command("go", list...).Output()
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
		"store, words":              {"internal/engine/memengine", module, 0},
		"store, layer":              {"internal/engine/redisengine", in("internal/remote"), 1},
		"store, calls":              {"internal/engine/redisengine", in("internal/calls"), 1},
		"calls, policy":             {"internal/calls", in("internal/remote"), 1},
		"store, stack":              {"internal/engine/redisengine", in("internal/stack"), 1},
		"public store, stack":       {"redisstore", in("internal/stack"), 0},
		"layer, store":              {"internal/remote", in("internal/engine/memengine"), 0},
		"layer, public store":       {"internal/remote", in("memstore"), 1},
		"server, public store":      {"server/internal/store", in("redisstore"), 1},
		"layer, itself":             {"internal/layer/lease", in("internal/layer/lease/cell"), 0},
		"layer, layer":              {"internal/layer/lease", in("internal/layer/denycache"), 1},
		"layer, stack":              {"internal/layer/lease", in("internal/stack"), 1},
		"stack, layer":              {"internal/stack", in("internal/layer/lease"), 0},
		"middleware, address":       {"weirhttp", in("clientip"), 0},
		"middleware, store":         {"weirhttp", in("memstore"), 1},
		"middleware, stack":         {"weirgrpc", in("internal/stack"), 1},
		"store, middleware":         {"redisstore", in("weirhttp"), 1},
		"front-end, address":        {"server/internal/httpapi", in("clientip"), 0},
		"library, server":           {"weirhttp", in("server/internal/rules"), 1},
		"library, YAML":             {"weirhttp", "go.yaml.in/yaml/v3", 1},
		"library, Prometheus":       {"internal/layer/observe", "github.com/prometheus/client_golang/prometheus", 1},
		"library, gRPC":             {"weirhttp", "google.golang.org/grpc", 1},
		"weirgrpc, gRPC":            {"weirgrpc", "google.golang.org/grpc", 0},
		"weirprom, Prometheus":      {"weirprom", "github.com/prometheus/client_golang/prometheus", 0},
		"weirmetrics, Prometheus":   {"weirmetrics", "github.com/prometheus/client_golang/prometheus", 1},
		"server, YAML":              {"server/internal/config", "go.yaml.in/yaml/v3", 0},
		"command, cobra":            {"server/internal/cli", "github.com/spf13/cobra", 0},
		"command, server":           {"server/internal/cli", in("server/internal/app"), 0},
		"server, front-end":         {"server/internal/app", in("server/internal/httpapi"), 0},
		"front-end, rules":          {"server/internal/httpapi", in("server/internal/rules"), 0},
		"front-end, server":         {"server/internal/httpapi", in("server/internal/app"), 1},
		"rules, front-end":          {"server/internal/rules", in("server/internal/httpapi"), 1},
		"config, rules":             {"server/internal/config", in("server/internal/rules"), 1},
		"rules, config":             {"server/internal/rules", in("server/internal/config"), 0},
		"server, command":           {"server/internal/app", in("server/internal/cli"), 1},
		"simulation, store":         {"server/internal/lab/sim", in("internal/engine/memengine"), 0},
		"simulation, rules":         {"server/internal/lab/replay", in("server/internal/rules"), 1},
		"command, simulation":       {"server/internal/cli", in("server/internal/lab/replay"), 0},
		"server, simulation":        {"server/internal/app", in("server/internal/lab/sim"), 1},
		"rules, models":             {"server/internal/rules", in("server/internal/models/meter"), 1},
		"server, models":            {"server/internal/app", in("server/internal/models/meter"), 0},
		"models, front-end":         {"server/internal/models/meter", in("server/internal/httpapi"), 1},
		"store, tests":              {"internal/engine/memengine", in("internal/testing/storetest"), 1},
		"vague name":                {"server/internal/util", "strings", 1},
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
	detour := listed{ImportPath: "internal/engine/memengine", Imports: []string{"strings"}, Deps: []string{"strings", module + "/internal/layer/lease"}}
	two := listed{ImportPath: "weirhttp", Imports: []string{module + "/internal/layer/lease", module + "/internal/layer/shadow"}}
	for _, pkg := range []listed{detour, two} {
		if got := layout([]listed{pkg}); len(got) != 1 {
			t.Errorf("%v: %d offences, want 1: %v", pkg, len(got), got)
		}
	}
}
