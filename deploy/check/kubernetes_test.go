package check

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const manifestsFolder = root + "/deploy/kubernetes"

func decimal(n int) string { return strconv.Itoa(n) }

// manifests are what the folder applies, by kind.
type manifests struct {
	deployment appsv1.Deployment
	services   []corev1.Service
	account    corev1.ServiceAccount
	rules      corev1.ConfigMap
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
	scaler     autoscalingv2.HorizontalPodAutoscaler
	monitor    serviceMonitor
}

// serviceMonitor is what the chart uses of the Prometheus operator's kind.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// decode reads each manifest into its kind's type, with nothing unknown or twice
// in it.
func decode(t *testing.T) *manifests {
	t.Helper()
	var kustomization struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []string `json:"resources"`
	}
	strictly(t, read(t, filepath.Join(manifestsFolder, "kustomization.yaml")), &kustomization)
	listed := map[string]bool{"kustomization.yaml": true}
	m := new(manifests)
	for _, name := range kustomization.Resources {
		listed[name] = true
		for document := range bytes.SplitSeq(read(t, filepath.Join(manifestsFolder, name)), []byte("\n---\n")) {
			m.add(t, document)
		}
	}
	files, err := os.ReadDir(manifestsFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) == ".yaml" && !listed[file.Name()] {
			t.Errorf("kustomization.yaml leaves out %s", file.Name())
		}
	}
	return m
}

func (m *manifests) add(t *testing.T, document []byte) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		strictly(t, document, &m.deployment)
	case "v1 Service":
		m.services = append(m.services, corev1.Service{})
		strictly(t, document, &m.services[len(m.services)-1])
	case "v1 ServiceAccount":
		strictly(t, document, &m.account)
	case "v1 ConfigMap":
		strictly(t, document, &m.rules)
	case "policy/v1 PodDisruptionBudget":
		strictly(t, document, &m.budget)
	case "networking.k8s.io/v1 NetworkPolicy":
		strictly(t, document, &m.network)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		strictly(t, document, &m.scaler)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		strictly(t, document, &m.monitor)
	default:
		t.Fatalf("a kind that the test does not know: %v", kind)
	}
}

func strictly(t *testing.T, document []byte, into any) {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	// As the cluster reads it: the case of names matters too.
	mistakes, err := json.UnmarshalStrict(text, into)
	if err := errors.Join(append(mistakes, err)...); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
}

// TestManifests: what refers to something refers to what is there.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*manifests{"manifests": decode(t), "chart": chart(t)} {
		t.Run(name, func(t *testing.T) { refers(t, m) })
	}
}

func refers(t *testing.T, m *manifests) {
	t.Helper()
	pod := m.deployment.Spec.Template
	selects := func(what string, selector map[string]string) {
		t.Helper()
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v, the pods are %v", what, selector, pod.Labels)
		}
	}
	selects("the deployment", m.deployment.Spec.Selector.MatchLabels)
	selects("the budget", m.budget.Spec.Selector.MatchLabels)
	selects("the network policy", m.network.Spec.PodSelector.MatchLabels)
	container := pod.Spec.Containers[0]
	ports := map[string]bool{}
	for _, port := range container.Ports {
		ports[port.Name] = true
	}
	for _, service := range m.services {
		selects(service.Name, service.Spec.Selector)
		for _, port := range service.Spec.Ports {
			if !ports[port.TargetPort.String()] {
				t.Errorf("%s: no port %s", service.Name, port.TargetPort.String())
			}
		}
	}
	for _, port := range m.network.Spec.Ingress[0].Ports {
		if !ports[port.Port.String()] {
			t.Errorf("the network policy lets through %s, which is no port", port.Port.String())
		}
	}
	if container.ReadinessProbe.FailureThreshold < 2 {
		t.Error("one late answer takes a pod out")
	}
	from := m.network.Spec.Ingress[1].From[0]
	if from.NamespaceSelector == nil || from.PodSelector.MatchLabels["app.kubernetes.io/name"] != "prometheus" {
		t.Errorf("Prometheus is kept out: %v", m.network.Spec.Ingress)
	}
	if to := m.network.Spec.Ingress[1].Ports; len(to) != 1 || to[0].Port.String() != "metrics" || !ports["metrics"] {
		t.Errorf("a pod with the label of Prometheus may take: %v", to)
	}
	for _, rule := range m.network.Spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			t.Errorf("Weir may reach any host or port: %v", rule)
		}
	}
	if pod.Spec.ServiceAccountName != m.account.Name {
		t.Errorf("no account %q", pod.Spec.ServiceAccountName)
	}
	if volume := pod.Spec.Volumes[0]; volume.ConfigMap.Name != m.rules.Name || container.VolumeMounts[0].Name != volume.Name {
		t.Errorf("the rules %q are not what is mounted: %v", m.rules.Name, volume)
	}
	if container.VolumeMounts[0].SubPath != "" {
		t.Error("with subPath a change never arrives")
	}
}

// TestManifestsConfine: the pods meet the Pod Security Standard "restricted".
func TestManifestsConfine(t *testing.T) {
	t.Parallel()
	pod := decode(t).deployment.Spec.Template.Spec
	security := pod.SecurityContext
	if !*security.RunAsNonRoot || *security.RunAsUser != 65532 || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod runs as %+v", security)
	}
	for _, container := range pod.Containers {
		c := container.SecurityContext
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
			t.Errorf("%s runs as %+v", container.Name, c)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: %v", container.Name, container.Resources)
		}
		for _, volume := range container.VolumeMounts {
			if !volume.ReadOnly {
				t.Errorf("%s can write to %s", container.Name, volume.MountPath)
			}
		}
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Error("the pod is given what it does not need")
	}
}

// TestManifestsRun runs the deployment's command with the rules of its config map
// as the kubelet would mount them, and makes the calls of its probes.
func TestManifestsRun(t *testing.T) {
	t.Parallel()
	made, m := release(t), decode(t)
	store := testserver.StartRedis(t)
	container := m.deployment.Spec.Template.Spec.Containers[0]
	rules := mounted(t, m.rules.Data)
	command := []string{made.binary}
	for _, arg := range container.Args {
		command = append(command, strings.ReplaceAll(arg, "="+container.VolumeMounts[0].MountPath, "="+rules))
	}
	if !slices.Contains(command, "--config="+rules) {
		t.Fatalf("the command does not read what is mounted: %v", command)
	}
	var env []string
	for _, variable := range container.Env {
		if variable.ValueFrom != nil {
			variable.Value = store.URL()
		}
		env = append(env, variable.Name+"="+variable.Value)
	}
	// The shipped time to linger is for balancers that are not here.
	s := serve(t, served{command: command, env: env, more: []string{"--drain-delay=0"}})
	for what, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if got := s.get(probe.HTTPGet.Path); got != 200 || probe.HTTPGet.Port.String() != "http" {
			t.Errorf("%s probe: %d at port %s", what, got, probe.HTTPGet.Port.String())
		}
	}
	if got := s.get("/v1/auth?domain=edge&masked_remote_address=192.0.2.1/32"); got != 204 {
		t.Errorf("the shipped rules: %d, want 204", got)
	}
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	// A busy machine may have had the server probe its store.
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, ":probe") || strings.HasSuffix(key, ":instances") })
	if err != nil || len(keys) != 1 {
		t.Errorf("keys in the store of the secret: %v, %v; want one", keys, err)
	}
	s.stop()
}

// mounted writes files as the kubelet does: by links through a folder that is
// replaced as a whole.
func mounted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink("..2026", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		write(t, filepath.Join(dir, "..2026", name), files[name], 0o644)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestManifestsDrain: a pod that ends has the time that it takes, and proxies the
// time to notice.
func TestManifestsDrain(t *testing.T) {
	t.Parallel()
	pod := decode(t).deployment.Spec.Template.Spec
	container := pod.Containers[0]
	delay, total := flag(t, container.Args, "--drain-delay"), flag(t, container.Args, "--drain-timeout")
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	notice := time.Duration(container.ReadinessProbe.PeriodSeconds*container.ReadinessProbe.FailureThreshold+container.ReadinessProbe.TimeoutSeconds) * time.Second
	if delay <= notice || total <= delay || grace <= total {
		t.Errorf("noticed after %v, lingers %v, ends within %v, killed after %v: want them in this order", notice, delay, total, grace)
	}
}

func flag(t *testing.T, args []string, name string) time.Duration {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatalf("no %s in %v", name, args)
	return 0
}
