# "make" alone lists the targets.

.DEFAULT_GOAL := help

GO ?= go
# The race detector and the real servers make whole runs slow on small machines.
TIMEOUT ?= 30m
BENCHTIME ?= 1s
ROUNDS ?= 5
FUZZTIME ?= 1000000x
FUZZ ?= .
EFFORT ?= 20
DURATION ?= 10m
SEED ?= 1
ARGS ?=
# The workspace's modules, whatever the environment says. The others stand alone.
export GOWORK = $(CURDIR)/go.work
ALL = ./... ./server/... ./trace/... ./weirgrpc/... ./weirprom/...
# Those with tests that stand alone. Most of them wait more than they work.
ALONE = tools/promises deploy/check server/tools/sdks examples server/bench server/tools/h2spec server/tools/grpcurl server/tools/sigv4

# Linters live in a module of their own; -modfile is refused in workspaces.
TOOL = GOWORK=off $(GO) tool -modfile=tools/go.mod
# The race detector needs a C compiler.
RACE = $$(test "$$($(GO) env CGO_ENABLED)" = 1 && echo -race || echo "no C compiler: no race detector" >&2)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## serve the demonstration rules from memory, Redis clients too; ARGS="--http 127.0.0.1:0" adds flags
	WEIR_RESP="$${WEIR_RESP-127.0.0.1:6380}" $(GO) run ./server/cmd/weir serve $(ARGS)

.PHONY: build
build: ## build the static binary bin/weir; the same sources give the same bytes
	@GO='$(GO)' scripts/build.sh bin/weir

.PHONY: reproduce
reproduce: ## build twice with nothing cached and compare
	@GO='$(GO)' scripts/reproduce.sh

.PHONY: release
release: ## archives, packages, bills of materials, provenance and checksums in dist/; SIGNING_KEY=… signs
	@GO='$(GO)' scripts/vulnerabilities.sh --required
	@GO='$(GO)' scripts/release.sh

.PHONY: versions
versions: ## write VERSION=v1.2.3 into go.mod, go.sum and go.work files, before the commit that a release tags
	cd tools/release && GOWORK=off $(GO) run ./modules -root ../.. -version $(VERSION) -write

.PHONY: pin
pin: ## write the digests of base images behind their tags; needs docker and a registry
	@scripts/pin.sh

# A process under the race detector sleeps for a second before it ends, unless told
# otherwise; the tests end hundreds. "make lint" vets. Many tests wait more than they work,
# so that two cores have enough time for three packages.
.PHONY: test
test: export GORACE = atexit_sleep_ms=20
test: setup ## install what tests need, then run them all under the race detector
	$(GO) test $(RACE) -vet=off -p 3 -count=1 -timeout $(TIMEOUT) $(ALL)
	@printf '%s\n' $(ALONE) | GOWORK=off xargs -P 3 -n 1 sh -c 'flags=; \
	  case $$0 in examples|server/tools/h2spec) flags=$(RACE);; server/tools/sdks) flags="-parallel 8";; esac; \
	  said=$$(cd $$0 && $(GO) test $$flags -vet=off -count=1 -timeout $(TIMEOUT) ./... 2>&1); code=$$?; printf "%s:\n%s\n" "$$0" "$$said"; exit $$code'
	@for each in python3:clients/python python3:server/tools/sdks node:clients/node node:server/tools/sdks java:docs/any.md; do \
	  command -v "$${each%%:*}" >/dev/null || echo "skipped: $${each#*:} (no $${each%%:*})"; done

.PHONY: test-short
test-short: ## run the tests that take a moment, more of them at once because they wait more than they work
	$(GO) test -short -p 4 -timeout 2m $(ALL)
	cd examples && GOWORK=off $(GO) test -short -timeout 2m ./...
	cd deploy/check && GOWORK=off $(GO) test -short -timeout 2m ./...

.PHONY: setup
setup: ## install redis-server, nginx, haproxy, caddy, chromium, SDKs for node and Python, grpcio and a C compiler where they are missing
	@scripts/setup.sh

.PHONY: lint
lint: ## formatting, vet, staticcheck, known vulnerabilities, go.mod files
	@GO='$(GO)' TOOL='$(TOOL)' scripts/lint.sh

.PHONY: measure
measure: ## count lines and packages
	@GO='$(GO)' scripts/measure.sh

.PHONY: format
format: ## format all Go files
	$(TOOL) gofumpt -w .

.PHONY: generate
generate: ## write what is made of the code: the JSON Schema of rules files, and their reference in the docs
	$(GO) test ./server/internal/config -run 'TestReference|TestSchemaFile' -args -update

.PHONY: bench
bench: ## measure side by side with other limiters, in ROUNDS rounds that benchstat can compare
	@GO='$(GO)' BENCHTIME=$(BENCHTIME) ROUNDS=$(ROUNDS) scripts/bench.sh

.PHONY: performance
performance: ## measure the same, and write the tables of docs/performance.md
	@GO='$(GO)' BENCHTIME=$(BENCHTIME) ROUNDS=$(ROUNDS) scripts/bench.sh >bin/measured.txt
	mv bin/measured.txt server/bench/testdata/measured.txt
	cd server/bench && GOWORK=off $(GO) test -count=1 -run '^TestPage$$' . -args -update

.PHONY: promises
promises: ## check what Weir and other limiters promise, and write the table of docs/comparison.md; ARGS='-only redis_rate'
	@GO='$(GO)' scripts/promises.sh $(ARGS)

.PHONY: gateways
gateways: ## hold the resources in docs/gateways.md and docs/envoy-gateway.md against the types of kgateway, agentgateway, Contour, Istio, Envoy Gateway and Envoy; fetches their modules
	cd deploy/check && GOWORK=off $(GO) test -count=1 -run '^TestGateways$$' . -args -gateways

.PHONY: guard
guard: ## measure the CPU time that a gRPC call costs the server, with h2load
	@GO='$(GO)' scripts/guard.sh

.PHONY: bench-clients
bench-clients: build ## compare the asyncio storage for limits with that of redis-py, in turns; fetches packages from PyPI
	WEIR=$(CURDIR)/bin/weir clients/peers/python/run bench

.PHONY: bench-parts
bench-parts: ## measure packages by themselves; BENCHTIME=5s for steadier numbers
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./internal/engine/memengine ./internal/engine/redisengine

.PHONY: chaos
chaos: setup ## break Redis, the network, the clock and Weir itself under load; prints promise, measure and verdict for each
	cd server/internal/testing/chaos && $(GO) test -count=1 -timeout 60m -parallel 6 -args -full
	cd server/internal/testing/e2e && $(GO) test -count=1 -timeout 5m -run '^TestHostileTogether$$' -args -full

.PHONY: envoy
envoy: setup ## three real Envoys divide one limit by the quota service for a minute each, while things fail; judges the part of it that is used
	cd server/internal/testing/e2e && $(GO) test -count=1 -timeout 30m -v -run '^TestQuotaRuns$$' -args -envoy

.PHONY: soak
soak: setup ## one fault after the other, in an order that SEED makes, for DURATION, over two servers that are watched
	cd server/internal/testing/chaos && $(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -args -full -soak $(DURATION) -seed $(SEED)

.PHONY: axe
axe: setup ## check the dashboard's accessibility with axe-core, fetched from npm's registry
	@GO='$(GO)' scripts/axe.sh

.PHONY: gateway
gateway: setup ## build Envoy Gateway and let it send its rules to Weir; minutes the first time
	@GO='$(GO)' scripts/gateway.sh

.PHONY: peers
peers: ## run the suites of other rate limiters, from PyPI, npm and GitHub, against the adapters of clients/, and print what fails and why
	cd server/internal/testing/e2e && $(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestPeers$$' -v . -args -peers

.PHONY: histories
histories: setup ## compare the stores with their models over random histories EFFORT times as long as in the tests
	$(GO) test -count=1 -timeout 0 -run 'TestSharing$$|TestShares$$|TestFullStore|TestTwins$$|TestIDsHappenOnce$$|TestRuns|TestAnswersMatchTheStore$$' ./internal/engine/memengine ./internal/engine/redisengine ./internal/stack -args -effort $(EFFORT)

.PHONY: scripts
scripts: ## draw EFFORT times 220 scripts of instances, callers and faults of a store, and check who decides and what is charged
	$(GO) test -count=1 -timeout 0 -run 'TestScripts$$|TestManyDebtsAndAHotKey$$' ./internal/remote -args -effort $(EFFORT)

.PHONY: mutants
mutants: ## plant each mistake of the table in internal/remote/mutants_test.go, and run the test that finds it
	$(GO) test -count=1 -timeout 0 -run 'TestMutants$$' ./internal/remote -args -mutants

.PHONY: fuzz
fuzz: ## run every fuzz target for a million executions and print a table; FUZZTIME=10s, FUZZ='server/internal/resp FuzzParse'
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
	$(GO) clean -testcache
