package check

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const chartFolder = root + "/deploy/helm/weir"

// rendered is what "helm template NAME" makes of the chart, and the notes that an
// installation prints.
func rendered(t *testing.T, name string, values map[string]any) (m *manifests, notes string, err error) {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: name, Namespace: "limits", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, "", err
	}
	m = new(manifests)
	for file, text := range files {
		switch path.Ext(file) {
		case ".txt":
			notes = text
		case ".yaml":
			for document := range bytes.SplitSeq([]byte(text), []byte("\n---\n")) {
				if len(bytes.TrimSpace(document)) > 0 {
					m.add(t, document)
				}
			}
		}
	}
	return m, notes, nil
}

func chart(t *testing.T) *manifests {
	t.Helper()
	m, _, err := rendered(t, "weir", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestChartLint: Helm has nothing to say of the chart but that it has no icon.
func TestChartLint(t *testing.T) {
	t.Parallel()
	linter := lint.All(chartFolder, nil, "limits", true)
	for _, m := range linter.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// TestChartIsTheManifests: without values the chart gives the pods that the manifests
// give.
func TestChartIsTheManifests(t *testing.T) {
	t.Parallel()
	got, want := chart(t), decode(t)
	pod := got.deployment.Spec.Template.Spec
	for i := range pod.TopologySpreadConstraints {
		pod.TopologySpreadConstraints[i].LabelSelector = want.deployment.Spec.Template.Spec.TopologySpreadConstraints[i].LabelSelector
	}
	if diff := cmp.Diff(want.deployment.Spec.Template.Spec, pod); diff != "" {
		t.Errorf("the pods differ: %s", diff)
	}
	if diff := cmp.Diff(want.rules.Data, got.rules.Data); diff != "" {
		t.Errorf("the rules differ: %s", diff)
	}
	got.network.Spec.PodSelector, got.budget.Spec.Selector = want.network.Spec.PodSelector, want.budget.Spec.Selector
	for i := range got.services {
		got.services[i].Spec.Selector = want.services[i].Spec.Selector
	}
	if diff := cmp.Diff(want.network.Spec, got.network.Spec) + cmp.Diff(want.budget.Spec, got.budget.Spec); diff != "" {
		t.Errorf("the policies differ: %s", diff)
	}
	for i, service := range want.services {
		if diff := cmp.Diff(service.Spec, got.services[i].Spec); diff != "" {
			t.Errorf("service %s differs: %s", service.Name, diff)
		}
	}
}

// TestChartValues: a second release has names of its own, and values reach the pods.
func TestChartValues(t *testing.T) {
	t.Parallel()
	m, notes, err := rendered(t, "edge", map[string]any{
		"image":               map[string]any{"repository": "registry.example.org/weir", "digest": "sha256:" + strings.Repeat("0", 64)},
		"args":                []any{"--http-token-file=/etc/tokens/http"},
		"volumes":             []any{map[string]any{"name": "tokens", "secret": map[string]any{"secretName": "tokens"}}},
		"volumeMounts":        []any{map[string]any{"name": "tokens", "mountPath": "/etc/tokens", "readOnly": true}},
		"env":                 []any{map[string]any{"name": "WEIR_LOG_LEVEL", "value": "warn"}},
		"podAnnotations":      map[string]any{"prometheus.io/scrape": "true"},
		"podLabels":           map[string]any{"team": "edge"},
		"podDisruptionBudget": map[string]any{"enabled": false},
		"networkPolicy":       map[string]any{"enabled": false},
		"store":               map[string]any{"secret": "redis", "key": "uri"},
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := m.deployment.Spec.Template
	c := pod.Spec.Containers[0]
	got := fmt.Sprintln(m.deployment.Name, m.account.Name, m.rules.Name, c.Image, c.Args[len(c.Args)-1], c.Env[0].ValueFrom.SecretKeyRef.Name,
		c.Env[0].ValueFrom.SecretKeyRef.Key, c.Env[len(c.Env)-1].Name, pod.Annotations, pod.Labels["team"], pod.Spec.Volumes[1].Name, c.VolumeMounts[1].MountPath,
		m.budget.Name+m.network.Name)
	want := "edge-weir edge-weir edge-weir-rules registry.example.org/weir@sha256:" + strings.Repeat("0", 64) +
		" --http-token-file=/etc/tokens/http redis uri WEIR_LOG_LEVEL map[prometheus.io/scrape:true] edge tokens /etc/tokens \n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if selector := (metav1.LabelSelector{MatchLabels: m.services[0].Spec.Selector}); selector.MatchLabels["app.kubernetes.io/instance"] != "edge" {
		t.Errorf("the service selects %v", selector)
	}
	if !strings.Contains(notes, "kubectl --namespace limits port-forward deployment/edge-weir 6070") {
		t.Errorf("nothing says how to reach the dashboard: %s", notes)
	}
}

// TestChartFitsIn: the chart uses the rules, the Prometheus and the autoscaler that a
// cluster has, and lets Weir reach what else it needs.
func TestChartFitsIn(t *testing.T) {
	t.Parallel()
	m, _, err := rendered(t, "weir", map[string]any{
		"existingRules":  "limits",
		"autoscaling":    map[string]any{"enabled": true, "maxReplicas": 9},
		"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "monitoring"}},
		"networkPolicy": map[string]any{
			"store":  []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.1.2.0/24"}}},
			"egress": []any{map[string]any{"ports": []any{map[string]any{"port": 26379}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Name; got != "limits" || m.rules.Name != "" {
		t.Errorf("mounted %q, made %q", got, m.rules.Name)
	}
	if s := m.scaler.Spec; m.deployment.Spec.Replicas != nil || s.ScaleTargetRef.Name != m.deployment.Name || *s.MinReplicas != 2 || s.MaxReplicas != 9 {
		t.Errorf("replicas %v, scaled by %+v", m.deployment.Spec.Replicas, s)
	}
	monitor := m.monitor
	if monitor.Labels["release"] != "monitoring" || !slices.ContainsFunc(slices.Concat(m.services[0].Spec.Ports, m.services[1].Spec.Ports), func(p corev1.ServicePort) bool { return p.Name == monitor.Spec.Endpoints[0].Port }) {
		t.Errorf("the monitor is %+v", monitor)
	}
	egress := m.network.Spec.Egress
	if len(egress) != 3 || egress[1].To[0].IPBlock.CIDR != "10.1.2.0/24" || egress[2].Ports[0].Port.IntValue() != 26379 {
		t.Errorf("egress: %+v", egress)
	}
}

// TestChartRefuses: values that are wrong are named.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for want, values := range map[string]map[string]any{
		"replica":      {"replica": 3},
		"replicas":     {"replicas": 0},
		"image/digest": {"image": map[string]any{"digest": "latest"}},
		"store/port":   {"store": map[string]any{"port": "redis"}},
		"rules":        {"rules": map[string]any{"edge.yaml": nil}},
	} {
		_, _, err := rendered(t, "weir", values)
		if err == nil || !slices.ContainsFunc([]string{want, strings.ReplaceAll(want, "/", ".")}, func(name string) bool { return strings.Contains(err.Error(), name) }) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
