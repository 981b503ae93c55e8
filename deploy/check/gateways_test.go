package check

import (
	"bytes"
	"encoding/json"
	goflag "flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/weirlimit/weir/internal/testing/pages"
)

var gateways = goflag.Bool("gateways", false, "hold docs/gateways.md against the gateways' types, whose modules are fetched")

// gatewayTypes are the files of modules that have the gateways' types.
var gatewayTypes = map[string][]string{
	"github.com/kgateway-dev/kgateway/v2@v2.2.0": {"install/helm/kgateway-crds/templates", "install/helm/agentgateway-crds/templates"},
	"github.com/envoyproxy/gateway@v1.9.1":       {"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_backendtrafficpolicies.yaml"},
	"github.com/projectcontour/contour@v1.33.8":  {"examples/contour/01-crds.yaml"},
	"istio.io/api@v1.32.0":                       {"kubernetes/customresourcedefinitions.gen.yaml"},
}

// TestGateways holds each resource of the pages against its type: nothing missing, and nothing that
// the type does not have.
func TestGateways(t *testing.T) {
	if !*gateways {
		t.Skip("make gateways runs it")
	}
	schemas := map[string]*jsonschema.Schema{}
	for module, paths := range gatewayTypes {
		folder := fetched(t, module)
		for _, path := range paths {
			for _, file := range yamlFiles(t, filepath.Join(folder, path)) {
				addTypes(t, schemas, file)
			}
		}
	}
	checked := map[string]bool{}
	for _, b := range append(pages.Blocks(t, "docs/gateways.md"), pages.Blocks(t, "docs/envoy-gateway.md")...) {
		switch {
		case strings.Contains(b.Text, "kind: EnvoyGateway\n"), strings.Contains(b.Text, "kind: Deployment\n"):
			// The first is a file of the program, the second is read by TestAIGatewayPage.
		case b.File == "contour.yaml":
			// The file has the keys of the resource ContourConfiguration, and a text in the place of one.
			text := strings.Replace(b.Text, "extensionService: weir/weir", "extensionService: {namespace: weir, name: weir}", 1)
			holds(t, schemas, b, "apiVersion: projectcontour.io/v1alpha1\nkind: ContourConfiguration\nspec:\n  "+strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
			checked["contour.yaml"] = true
		case strings.HasPrefix(b.Text, "apiVersion:"):
			checked[holds(t, schemas, b, b.Text)] = true
		}
	}
	if len(checked) != 8 {
		t.Errorf("%v: want eight kinds", checked)
	}
}

// fetched returns the folder of a module.
func fetched(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &answer); jsonErr != nil || answer.Dir == "" {
		t.Fatalf("%s: %v, %s", module, err, answer.Error)
	}
	return answer.Dir
}

func yamlFiles(t *testing.T, path string) []string {
	t.Helper()
	if strings.HasSuffix(path, ".yaml") {
		return []string{path}
	}
	files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", path, err)
	}
	return files
}

// addTypes adds the schemas of a file's types by kind and version, closed against unknown fields.
func addTypes(t *testing.T, schemas map[string]*jsonschema.Schema, file string) {
	t.Helper()
	for document := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
		var crd struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(document, &crd); err != nil || crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			closed(schema)
			for _, every := range []string{"apiVersion", "kind", "metadata"} {
				schema["properties"].(map[string]any)[every] = map[string]any{}
			}
			name := crd.Spec.Group + "/" + v.Name + "/" + crd.Spec.Names.Kind
			c := jsonschema.NewCompiler()
			c.DefaultDraft(jsonschema.Draft4) // in which the bounds of Kubernetes are
			if err := c.AddResource("type.json", schema); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compiled, err := c.Compile("type.json")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			schemas[name] = compiled
		}
	}
}

// closed has a schema refuse fields that it does not list, as kubectl does.
func closed(schema map[string]any) {
	delete(schema, "format") // of Kubernetes
	properties, lists := schema["properties"].(map[string]any)
	if lists && schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		if own, ok := p.(map[string]any); ok {
			closed(own)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if own, ok := schema[key].(map[string]any); ok {
			closed(own)
		}
	}
}

// holds holds a resource against its type, and returns the type's name.
func holds(t *testing.T, schemas map[string]*jsonschema.Schema, b pages.Block, text string) string {
	t.Helper()
	var resource map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &resource); err != nil {
		t.Fatalf("%s:%d: %v", b.Page, b.Line, err)
	}
	name := resource["apiVersion"].(string) + "/" + resource["kind"].(string)
	schema := schemas[name]
	if schema == nil {
		t.Errorf("%s:%d: no type %s", b.Page, b.Line, name)
		return name
	}
	if err := schema.Validate(resource); err != nil {
		t.Errorf("%s:%d: %v", b.Page, b.Line, err)
	}
	if resource["kind"] == "EnvoyFilter" {
		envoyPatches(t, b, resource)
	}
	return name
}

// envoyPatches reads the patches of Istio's resource as Envoy does.
func envoyPatches(t *testing.T, b pages.Block, resource map[string]any) {
	t.Helper()
	text, err := json.Marshal(resource["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		ConfigPatches []struct {
			ApplyTo string
			Patch   struct{ Value json.RawMessage }
		}
	}
	if err := json.Unmarshal(text, &spec); err != nil || len(spec.ConfigPatches) != 2 {
		t.Fatalf("%d patches: %v", len(spec.ConfigPatches), err)
	}
	var filter struct {
		Config map[string]any `json:"typed_config"`
	}
	if err := json.Unmarshal(spec.ConfigPatches[0].Patch.Value, &filter); err != nil {
		t.Fatal(err)
	}
	delete(filter.Config, "@type")
	config, _ := json.Marshal(filter.Config)
	for message, text := range map[proto.Message][]byte{&ratelimit.RateLimit{}: config, &route.VirtualHost{}: spec.ConfigPatches[1].Patch.Value} {
		if err := protojson.Unmarshal(text, message); err != nil {
			t.Errorf("%s:%d: %T: %v", b.Page, b.Line, message, err)
		}
	}
}
