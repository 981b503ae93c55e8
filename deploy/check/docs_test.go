package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/weirlimit/weir/internal/testing/pages"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// block returns the first block of a page that is this test's and has a text in it.
func block(t *testing.T, page, language, text string) string {
	t.Helper()
	for _, b := range pages.Mine(t, page) {
		if b.Language == language && strings.Contains(b.Text, text) {
			return b.Text
		}
	}
	t.Fatalf("%s has no block of %s with %q for this test", page, language, text)
	return ""
}

// TestReadmeServer does what the README says of the server: its rules, its
// command, its calls. Only the addresses are others.
func TestReadmeServer(t *testing.T) {
	t.Parallel()
	m := release(t)
	shell := testserver.Require(t, "bash")
	testserver.Require(t, "curl")
	store, dir := testserver.StartRedis(t), t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, block(t, "README.md", "yaml", "domain: shop"), 0o644)
	line := strings.TrimSpace(block(t, "README.md", "sh", "weir serve --config rules.yaml"))
	command := strings.Fields(strings.NewReplacer("redis://127.0.0.1:6379", "redis://"+store.Addr(), "rules.yaml", rules).Replace(line))
	if command[0] != "weir" || !slices.Contains(command, "redis://"+store.Addr()+"/0") {
		t.Fatalf("the README says %q", line)
	}
	command[0] = m.binary
	s := serve(t, served{command: command})
	calls := strings.ReplaceAll(block(t, "README.md", "sh", "curl -d"), "http://127.0.0.1:8080", "http://"+s.http)
	calls = strings.ReplaceAll(calls, "curl ", "curl -sS --fail-with-body ")
	out, err := exec.Command(shell, "-ec", calls).CombinedOutput()
	if got := string(out); err != nil || !strings.HasPrefix(got, "HTTP/1.1 204") || !strings.Contains(got, `"allowed":true,"granted":5`) {
		t.Errorf("%v, %q: want that both are granted; of\n%s", err, out, calls)
	}
	s.stop()
}

// TestInstallArchive does what docs/install.md says of archives.
func TestInstallArchive(t *testing.T) {
	t.Parallel()
	m := release(t)
	target := filepath.Join(t.TempDir(), "weir")
	commands := strings.NewReplacer("/usr/local/bin/weir", target, "linux_amd64", "linux_"+goarch).Replace(block(t, "docs/install.md", "sh", "sha256sum"))
	dir := t.TempDir()
	for _, name := range []string{"checksums.txt", m.name + ".tar.gz"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join(m.dist, name)), 0o644)
	}
	if err := run(nil, dir, "sh", "-ec", commands); err != nil {
		t.Fatal(err)
	}
	said := block(t, "docs/install.md", "console", "weir version")
	said = strings.NewReplacer("go1.26.8", runtime.Version(), "linux/amd64", "linux/"+goarch).Replace(said)
	if got := "$ weir version\n" + output(t, target, "version"); got != said {
		t.Errorf("docs/install.md says\n%s\nbut it is\n%s", said, got)
	}
	// What was changed on the way is found.
	write(t, filepath.Join(dir, m.name+".tar.gz"), "changed", 0o644)
	if err := run(nil, dir, "sh", "-ec", commands); err == nil {
		t.Error("an archive that is another passes")
	}
}

// TestDockerPage runs what docs/install.md has docker run: the image's program with the options'
// variables, files and arguments.
func TestDockerPage(t *testing.T) {
	t.Parallel()
	m := release(t)
	shipped := stages(t)[1]
	store, dir := testserver.StartRedis(t), t.TempDir()
	write(t, filepath.Join(dir, "rules", "rules.yaml"), "domain: shop\n", 0o644)
	n := 0
	for _, b := range pages.Mine(t, "docs/install.md") {
		for _, command := range b.Commands() {
			words := strings.Fields(strings.Replace(command, `"$(id -u):$(id -g)"`, "1000", 1))
			switch {
			case strings.HasPrefix(command, "docker run "):
				n++
				how := container(t, words[2:], dir, shipped)
				how.command[0] = m.binary
				for i, v := range how.env {
					how.env[i] = strings.Replace(v, "redis.internal:6379", store.Addr(), 1)
				}
				serve(t, how).stop()
			case words[0] == "docker":
				if file := filepath.Join(root, words[slices.Index(words, "-f")+1]); file != dockerfile && file != filepath.Join(composeFolder, "compose.yaml") {
					t.Errorf("%s:%d: no test reads %s", b.Page, b.Line, file)
				}
			default:
				if b.Language == "sh" && strings.Contains(b.Text, "docker run ") {
					if err := run(nil, dir, "sh", "-ec", command); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	if n != 3 {
		t.Errorf("the page has %d docker run", n)
	}
}

// container reads the options of docker run: the command with its variables, without a container.
func container(t *testing.T, words []string, dir string, shipped instructions.Stage) served {
	t.Helper()
	how := served{command: []string{""}}
	for _, c := range instructionsOf[*instructions.EnvCommand](shipped) {
		for _, pair := range c.Env {
			how.env = append(how.env, pair.Key+"="+pair.Value)
		}
	}
	mounts, ports := []string{}, []string{}
	for len(words) > 0 && words[0] != "weir" {
		option := words[0]
		words = words[1:]
		if option == "--rm" || option == "--read-only" {
			continue
		}
		value := strings.Trim(words[0], `"`)
		words = words[1:]
		switch option {
		case "-e":
			how.env = append(how.env, value)
		case "-p":
			ports = append(ports, value[strings.LastIndex(value, ":"):])
		case "-v":
			parts := strings.Split(strings.Replace(value, "$PWD", dir, 1), ":")
			mounts = append(mounts, parts[1], parts[0])
		case "--cap-drop", "--user":
		default:
			t.Fatalf("docker run has an option %s", option)
		}
	}
	if len(words) == 0 {
		t.Fatal("docker run names no image")
	}
	for _, c := range instructionsOf[*instructions.CmdCommand](shipped) {
		if len(words) == 1 {
			words = append(words, c.CmdLine...)
		}
	}
	all := strings.Join(append(words, how.env...), " ") + " "
	for _, port := range ports {
		if !strings.Contains(all, port+" ") {
			t.Errorf("nothing listens at %s: %s", port, all)
		}
	}
	inside := strings.NewReplacer(append(mounts, "0.0.0.0:6070", "0.0.0.0:0")...)
	for i, v := range how.env {
		name, value, _ := strings.Cut(v, "=")
		how.env[i] = name + "=" + inside.Replace(value)
	}
	for _, word := range words[1:] {
		how.command = append(how.command, inside.Replace(word))
	}
	return how
}

// TestKubernetesPages holds the commands for a cluster against the manifests and the chart: the
// secret is the one that the pods read, and the port is one that they listen at.
func TestKubernetesPages(t *testing.T) {
	t.Parallel()
	plain := decode(t)
	for _, page := range []string{"docs/install.md", "docs/kubernetes.md"} {
		for _, b := range pages.Mine(t, page) {
			for _, command := range b.Commands() {
				words := strings.Fields(command)
				switch strings.Join(words[:min(2, len(words))], " ") {
				case "kubectl create":
					holdSecret(t, plain, words)
				case "kubectl apply":
					if folder := words[len(words)-1]; filepath.Join(root, folder) != manifestsFolder {
						t.Errorf("%s: no test reads %s", page, folder)
					}
				case "kubectl port-forward":
					if kind, name, _ := strings.Cut(words[2], "/"); kind != "deploy" || name != plain.deployment.Name || words[3] != "6070:6070" {
						t.Errorf("%s: the deployment is %s, and its admin listener at 6070", command, plain.deployment.Name)
					}
				case "helm install":
					values, err := strvals.Parse(words[len(words)-1])
					if err != nil || filepath.Join(root, words[3]) != chartFolder {
						t.Fatalf("%s: %v", command, err)
					}
					m, _, err := rendered(t, words[2], values)
					if err != nil {
						t.Fatal(err)
					}
					if image := m.deployment.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.org/weir") {
						t.Errorf("%s: the image is %s", command, image)
					}
				}
			}
		}
	}
}

// holdSecret demands that kubectl create makes the secret that the pods read.
func holdSecret(t *testing.T, m *manifests, words []string) {
	t.Helper()
	for _, v := range m.deployment.Spec.Template.Spec.Containers[0].Env {
		if v.ValueFrom == nil {
			continue
		}
		want := []string{"kubectl", "create", "secret", "generic", v.ValueFrom.SecretKeyRef.Name}
		if ref := v.ValueFrom.SecretKeyRef; !slices.Equal(words[:5], want) || !strings.HasPrefix(words[5], "--from-literal="+ref.Key+"=redis") {
			t.Errorf("%v: the pods read the key %s of the secret %s", words, ref.Key, ref.Name)
		}
		return
	}
	t.Error("the pods read no secret")
}

// TestAIGatewayPage starts the deployment of docs/envoy-gateway.md: its command with its variables.
func TestAIGatewayPage(t *testing.T) {
	t.Parallel()
	made := release(t)
	m := new(manifests)
	for _, b := range pages.Mine(t, "docs/envoy-gateway.md") {
		for document := range strings.SplitSeq(b.Text, "\n---\n") {
			m.add(t, []byte(document))
		}
	}
	c := m.deployment.Spec.Template.Spec.Containers[0]
	program := filepath.Join(t.TempDir(), filepath.Base(c.Command[0]))
	if err := os.Symlink(made.binary, program); err != nil {
		t.Fatal(err)
	}
	how := served{command: append([]string{program}, c.Command[1:]...)}
	for _, v := range c.Env {
		value := strings.NewReplacer("redis.redis-system.svc.cluster.local:6379", testserver.StartRedis(t).Addr(),
			"ai-gateway-controller.envoy-ai-gateway-system:18002", testserver.FreeAddr(t)).Replace(v.Value)
		how.env = append(how.env, v.Name+"="+value)
	}
	s := serve(t, how)
	if path := c.ReadinessProbe.HTTPGet.Path; s.get(path) != 200 {
		t.Errorf("%s is not ready", path)
	}
	s.stop()
	if service := m.services[0]; service.Spec.Selector["app"] != m.deployment.Spec.Template.Labels["app"] {
		t.Errorf("the service selects %v", service.Spec.Selector)
	}
}
