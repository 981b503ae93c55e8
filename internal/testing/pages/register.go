package pages

import (
	"strings"
	"testing"
)

// A Claim gives the blocks of a page to the test that runs them, or says why no test
// does.
type Claim struct {
	Page     string // empty for any
	Language string // of the blocks, empty for any
	Has      string // a text in them, empty for any
	File     string // the second word behind the fence, empty for any
	Test     string // the folder of the package (weir: the root), a dot, and the test's name
	Because  string // in the place of Test
}

// fits says whether a block is among those of the claim.
func (c Claim) fits(b Block) bool {
	return (c.Page == "" || c.Page == b.Page) && (c.Language == "" || c.Language == b.Language) && (c.File == "" || c.File == b.File) && strings.Contains(b.Text, c.Has)
}

// Claimed returns the first claim that a block is among.
func Claimed(b Block) (Claim, bool) {
	for _, c := range Register {
		if c.fits(b) {
			return c, true
		}
	}
	return Claim{}, false
}

// Mine returns the blocks of a page that the register gives to this test.
func Mine(t testing.TB, page string) []Block {
	t.Helper()
	var mine []Block
	test, _, _ := strings.Cut(t.Name(), "/")
	for _, b := range Blocks(t, page) {
		if c, found := Claimed(b); found && strings.HasSuffix(c.Test, "."+test) {
			mine = append(mine, b)
		}
	}
	if len(mine) == 0 {
		t.Fatalf("the register gives no block of %s to %s", page, test)
	}
	return mine
}

// Register has a claim for every block; the first that fits counts.
var Register = []Claim{
	{Has: "package main\n", Test: "weir.TestProgramsInPages"},
	{Page: "README.md", Has: "make run ", Test: "server/internal/testing/e2e.TestFirstHour"},
	{Page: "README.md", Language: "python", Test: "server/internal/testing/e2e.TestPythonInPages"},
	{Page: "docs/customers.md", Language: "python", Test: "server/internal/testing/e2e.TestPythonInPages"},
	{Page: "README.md", Language: "console", Test: "server/internal/testing/e2e.TestReadmeCall"},
	{Page: "README.md", Has: "domain: shop", Test: "deploy/check.TestReadmeServer"},
	{Page: "README.md", Has: "weir serve ", Test: "deploy/check.TestReadmeServer"},
	{Page: "README.md", Has: "curl -d", Test: "deploy/check.TestReadmeServer"},
	{Page: "README.md", Has: "go mod init", Test: "server/internal/testing/e2e.TestFirstHour"},
	{Page: "CONTRIBUTING.md", Because: "the tests run because of these commands; TestCommandsInPages holds their targets against the Makefile"},
	{Page: "SECURITY.md", Test: "deploy/check.TestRedisUserSuffices"},

	{Page: "docs/migrating.md", Language: "python", Because: "needs Flask-Limiter from PyPI; make peers runs an application with this line while Redis and Weir stop"},
	{Page: "docs/migrating.md", Language: "sh", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/migrating.md", Language: "yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/customers.md", Has: "weir key", Test: "server/internal/testing/e2e.TestCallsInPages"},
	{Page: "docs/customers.md", Language: "yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/customers.md", Language: "console", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/troubleshooting.md", Language: "yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/troubleshooting.md", Language: "console", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/troubleshooting.md", Language: "sh", Test: "server/internal/testing/e2e.TestCallsInPages"},
	{Page: "docs/kubernetes.md", Test: "deploy/check.TestKubernetesPages"},
	{Page: "docs/algorithms.md", Because: "a picture made of characters"},

	{Page: "docs/contributing/first-hour.md", Test: "server/internal/testing/e2e.TestFirstHour"},
	{Page: "docs/access.md", Has: "every user of this host", Test: "server/internal/app.TestOpenFilesDocs"},
	{Page: "docs/access.md", Has: "weir serve", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/access.md", Test: "server/internal/app.TestAccessDocs"},
	{Page: "docs/admin.md", Test: "server/internal/testing/e2e.TestAdminDocs"},
	{Page: "docs/any.md", Has: "weir serve", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/any.md", Test: "server/internal/testing/e2e.TestAnyLanguage"},
	{Page: "docs/architecture.md", Because: "a picture made of characters"},
	{Page: "docs/configuration.md", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/migrating-envoyproxy.md", Has: "would have answered", Test: "server/internal/app.TestComparedDocs"},
	{Page: "docs/migrating-envoyproxy.md", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/models.md", Has: `"event":"open"`, Test: "server/internal/models/ledger.TestJournalLines"},
	{Page: "docs/models.md", Has: "--upstream", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/models.md", Test: "server/internal/testing/e2e.TestModelsDocs"},
	{Page: "docs/litellm.md", Language: "sh", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/litellm.md", File: "behind.yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/litellm.md", Because: "a file of LiteLLM, which is 750 MB of packages for Python; the page says when it was run, and with which versions"},
	{Page: "docs/your-limits.md", Test: "server/internal/testing/e2e.TestYourLimitsDocs"},
	{Page: "docs/raising-limits.md", Test: "server/internal/testing/e2e.TestRaisingLimitsDocs"},
	{Page: "docs/spending.md", Test: "server/internal/testing/e2e.TestSpendingDocs"},
	{Page: "docs/envoy-gateway.md", Has: "kind: Service", Test: "deploy/check.TestAIGatewayPage"},
	{Page: "docs/envoy-gateway.md", Has: "kind: EnvoyGateway", Because: "Envoy Gateway reads it in a cluster only; make gateway runs its program with a provider of files, and TestEnvoyGateway calls as it does"},
	{Page: "docs/envoy-gateway.md", Has: "kind: BackendTrafficPolicy", Because: "needs a cluster; make gateways holds it against its type"},
	{Page: "docs/envoy-gateway.md", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/gateways.md", File: "contour.yaml", Because: "Contour's; make gateways holds it against the type"},
	{Page: "docs/gateways.md", Has: "apiVersion:", Because: "needs clusters; make gateways holds the resources against the gateways' types"},
	{Page: "docs/gateways.md", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/rlqs.md", File: "rlqs.yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/rlqs.md", Language: "console", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/rlqs.md", Has: "typed_config", Test: "server/internal/testing/e2e.TestQuotaPage"},
	{Page: "docs/rlqs.md", Language: "sh", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/envoy.md", File: "slots.yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/envoy.md", File: "tokens.yaml", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/envoy.md", Has: "apply_on_stream_done", Test: "deploy/check.TestEnvoyPairs"},
	{Page: "docs/envoy.md", Has: "typed_config", Test: "deploy/check.TestEnvoyPage"},
	{Page: "docs/envoy.md", Test: "server/internal/testing/e2e.TestEnvoyDocs"},
	{Page: "docs/sharing.md", Test: "server/internal/testing/e2e.TestSharingDocs"},
	{Page: "docs/http.md", Language: "sh", Test: "server/internal/testing/e2e.TestCallsInPages"},
	{Page: "docs/http.md", Test: "server/internal/testing/e2e.TestHTTPDocs"},
	{Page: "docs/install.md", Has: "weir version", Test: "deploy/check.TestInstallArchive"},
	{Page: "docs/install.md", Has: "sha256sum", Test: "deploy/check.TestInstallArchive"},
	{Page: "docs/install.md", Has: "ssh-keygen", Test: "deploy/check.TestSignature"},
	{Page: "docs/install.md", Has: "go install", Test: "deploy/check.TestGoInstall"},
	{Page: "docs/install.md", Has: "weir completion", Test: "server/internal/testing/e2e.TestCompletionDocs"},
	{Page: "docs/install.md", Has: "make build", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/install.md", Has: "systemctl", Because: "changes the machine; TestPackage installs such a package in a folder, and TestUnitVerified has systemd read the unit"},
	{Page: "docs/install.md", Has: "docker ", Test: "deploy/check.TestDockerPage"},
	{Page: "docs/install.md", Has: "kubectl ", Test: "deploy/check.TestKubernetesPages"},
	{Page: "docs/nginx.md", File: "limits.conf", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/nginx.md", Has: "weir convert", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/nginx.md", File: "ask-first.conf", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/nginx.md", File: "ask-last.conf", Test: "server/internal/cli.TestRulesDocs"},
	{Page: "docs/nginx.md", File: "login.conf", Test: "server/internal/testing/e2e.TestNginxLogin"},
	{Page: "docs/nginx.md", File: "login.yaml", Test: "server/internal/testing/e2e.TestNginxLogin"},
	{Page: "docs/nginx.md", File: "password.conf", Test: "server/internal/testing/e2e.TestNginxPasswords"},
	{Page: "docs/nginx.md", Has: "events {}", Test: "server/internal/testing/e2e.TestNginxDocs"},
	{Page: "docs/nginx.md", Has: "@unlimited", Test: "server/internal/testing/e2e.TestNginxDocs"},
	{Page: "docs/nginx.md", Language: "yaml", Test: "server/internal/testing/e2e.TestNginxDocs"},
	{Page: "docs/nginx.md", Language: "console", Test: "server/internal/testing/e2e.TestNginxDocs"},
	{Page: "docs/testing.md", Language: "sh", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/middleware.md", Language: "sh", Test: "deploy/check.TestReplaces"},
	{Page: "docs/redis.md", Has: "--scan", Test: "internal/engine/redisengine.TestRemoveWeir"},
	{Page: "docs/redis.md", Has: "user weir", Test: "internal/engine/redisengine.TestLeastPrivileges"},
	{Page: "docs/redis.md", Has: "weir serve", Test: "server/internal/testing/e2e.TestServersInPages"},
	{Page: "docs/operations.md", Has: "/readyz", Test: "server/internal/testing/e2e.TestCallsInPages"},
	{Page: "docs/operations.md", Has: "CLOSING", Because: "a picture made of characters"},
	{Page: "docs/performance.md", Has: "redis-benchmark", Test: "server/internal/testing/e2e.TestBenchDocs"},
	{Page: "docs/performance.md", Has: "h2load", Test: "server/internal/testing/e2e.TestBenchDocs"},
	{Page: "docs/quickstart.md", Test: "server/internal/testing/e2e.TestQuickstart"},
	{Page: "docs/resp.md", Language: "js", Test: "server/internal/testing/e2e.TestIORedisDocs"},
	{Page: "docs/resp.md", Language: "sh", Test: "server/internal/testing/e2e.TestRESPDocs"},
	{Page: "docs/resp.md", Test: "server/internal/testing/e2e.TestRESPForms"},
	{Page: "clients/node/README.md", Test: "server/internal/testing/e2e.TestNodeClient"},
	{Page: "clients/python/README.md", Test: "server/internal/testing/e2e.TestPythonClient"},
	{Page: "docs/simulate.md", Language: "sh", Test: "server/internal/cli.TestTryDocs"},
	{Page: "docs/simulate.md", Test: "server/internal/cli.TestSimulateDocs"},

	{Page: "examples/caddy/README.md", Has: "go run", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/chi/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/echo/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/gin/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/grpc/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/haproxy/README.md", Has: "go run", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/nethttp/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/nginx/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/tokens/README.md", Test: "server/internal/testing/e2e.TestExamples"},
	{Page: "examples/traefik/README.md", Has: "go run", Test: "server/internal/testing/e2e.TestExamples"},

	{Language: "go", Test: "weir.TestGoInPages"},
	{Language: "nginx", Test: "server/internal/testing/e2e.TestNginxBlocks"},
}
