//go:build e2e

package chart

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespace is where the tests install.
const namespace = "telemetry"

// TestInstallE2E takes the chart through a real API server: every value set in a
// strict dry run, then one release from its installation to its removal, with
// the program running on what the API server has.
func TestInstallE2E(t *testing.T) {
	c := startCluster(t)
	c.addOperatorTypes(t)
	_, err := c.typed.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
	require.NoError(t, err)
	t.Run("every value set, strictly", func(t *testing.T) { dryRuns(t, c) })
	t.Run("bad policies install nothing", func(t *testing.T) { refusedInstall(t, c) })
	t.Run("install, reload, restart, remove", func(t *testing.T) { lifeOfRelease(t, c) })
}

// TestLintE2E runs helm lint --strict.
func TestLintE2E(t *testing.T) {
	for name, set := range valueSets(t) {
		result := lint.All(chartDir, set, namespace, true)
		for _, m := range result.Messages {
			require.Less(t, m.Severity, support.WarningSev, "%s: %s", name, m)
		}
	}
}

func dryRuns(t *testing.T, c *cluster) {
	r := newRenderer(t)
	for name, set := range valueSets(t) {
		out, err := r.render(set)
		require.NoError(t, err)
		for _, manifest := range out.manifests {
			require.NoError(t, c.create(t.Context(), manifest, namespace, true), "%s:\n%s", name, manifest)
		}
		t.Logf("%s: the API server takes all %d objects", name, len(out.manifests))
	}
	misspelled := "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1}], selectors: {a: b}}\n"
	require.ErrorContains(t, c.create(t.Context(), misspelled, namespace, true), `unknown field "spec.selectors"`, "a dry run can refuse")
}

func refusedInstall(t *testing.T, c *cluster) {
	install := action.NewInstall(c.helm(t, namespace))
	install.ReleaseName, install.Namespace = "bad", namespace
	_, err := install.Run(newRenderer(t).chart, values(t, `rateControl: {policies: {logs: {rate: 100, burst: 10, default: {rate: 101}}}}`))
	require.ErrorContains(t, err, "default 101 = 101 items per second, 1 more than the cap's rate 100")
	maps, err := c.typed.CoreV1().ConfigMaps(namespace).List(t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/instance=bad"})
	require.NoError(t, err)
	require.Empty(t, maps.Items)
}

// policyValues has one class at this rate.
func policyValues(t *testing.T, rate int, more string) map[string]any {
	t.Helper()
	return values(t, fmt.Sprintf(`
ingester: {replicaCount: 4}
rateControl: {policies: {metrics: {rate: 1000, burst: 2000, classes: [{name: team-a, rate: %d}], rules: [{class: team-a, matchers: ['team="team-00"']}]}}}
%s`, rate, more))
}

func lifeOfRelease(t *testing.T, c *cluster) {
	requireRoot(t)
	helm, chart := c.helm(t, namespace), newRenderer(t).chart
	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace = "demo", namespace
	release, err := install.Run(chart, policyValues(t, 300, ""))
	require.NoError(t, err)
	require.Contains(t, release.Info.Notes, "4 ingesters (N = 4, from ingester.replicaCount)")
	first := c.statefulSet(t)
	require.EqualValues(t, 4, *first.Spec.Replicas)

	config, policy := newVolume(t, c.configMap(t, "config")), newVolume(t, c.configMap(t, "policy"))
	p := startPod(t, podOf(t, first, map[string]*volume{"config": config, "policy": policy}))
	p.requireConfined(t)
	require.EqualValues(t, 300, p.rateOf(t, "metrics", "team-a"))

	p.load(t)
	requireConserved(t, p)

	upgrade := func(values map[string]any) error {
		u := action.NewUpgrade(helm)
		u.Namespace = namespace
		_, err := u.Run("demo", chart, values)
		return err
	}
	require.NoError(t, upgrade(policyValues(t, 400, "")))
	require.Equal(t, first.Generation, c.statefulSet(t).Generation, "a change of the policy must leave the StatefulSet alone")
	policy.put(t, c.configMap(t, "policy"))
	eventually(t, "the policy is in force", func() error {
		if rate := p.rateOf(t, "metrics", "team-a"); rate != 400 {
			return fmt.Errorf("team-a has %v", rate)
		}
		return nil
	})

	p.load(t)
	requireConserved(t, p)

	require.ErrorContains(t, upgrade(policyValues(t, 1001, "")), "team-a 1001 = 1001 items per second, 1 more than the cap's rate 1000")
	require.Contains(t, c.configMap(t, "policy")["policy.yaml"], "rate: 400", "a policy that is refused changes nothing")

	require.NoError(t, upgrade(policyValues(t, 400, "config: {log: {level: debug}}")))
	changed := c.statefulSet(t)
	require.NotEqual(t, first.Spec.Template.Annotations, changed.Spec.Template.Annotations, "a change that is read at start must restart the pods")

	u := action.NewUninstall(helm)
	_, err = u.Run("demo")
	require.NoError(t, err)
	sets, err := c.typed.AppsV1().StatefulSets(namespace).List(t.Context(), meta.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, sets.Items)
}

// requireConserved requires that every item has one outcome: own metrics are
// written all the while, so it waits for an instant without a batch in flight.
func requireConserved(t *testing.T, p *pod) {
	t.Helper()
	eventually(t, "received is the sum of all outcomes", func() error {
		items := p.items(t)
		received := items["received"]
		sum := items["invalid"] + items["dropped"] + items["exempt"] + items["admitted"] + items["refused"]
		if received != sum {
			return fmt.Errorf("received %v, with an outcome %v: %v", received, sum, items)
		}
		if items["dropped"] == 0 || items["admitted"] == 0 {
			return fmt.Errorf("the load must be above the limits: %v", items)
		}
		return nil
	})
	t.Logf("items: %v", p.items(t))
}

func (c *cluster) statefulSet(t *testing.T) *apps.StatefulSet {
	t.Helper()
	set, err := c.typed.AppsV1().StatefulSets(namespace).Get(t.Context(), "demo-spillway", meta.GetOptions{})
	require.NoError(t, err)
	return set
}

func (c *cluster) configMap(t *testing.T, name string) map[string]string {
	t.Helper()
	m, err := c.typed.CoreV1().ConfigMaps(namespace).Get(t.Context(), "demo-spillway-"+name, meta.GetOptions{})
	require.NoError(t, err)
	return m.Data
}

// podOf is the container that the StatefulSet describes, on the image of the
// Dockerfile.
func podOf(t *testing.T, set *apps.StatefulSet, volumes map[string]*volume) podSpec {
	t.Helper()
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	data := t.TempDir()
	require.NoError(t, os.Chown(data, int(*pod.SecurityContext.RunAsUser), int(*pod.SecurityContext.FSGroup)))
	require.NoError(t, os.Chmod(data, 0o770))
	spec := podSpec{
		image: image(t, readDockerfile(t)), args: container.Args,
		user:   fmt.Sprintf("%d:%d", *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup),
		mounts: map[string]string{},
	}
	for _, m := range container.VolumeMounts {
		switch v, ok := volumes[m.Name]; {
		case ok:
			spec.mounts[m.MountPath] = v.dir
		case m.Name == "data":
			spec.mounts[m.MountPath] = data
		default:
			t.Fatalf("the test has no volume %s", strings.ToUpper(m.Name))
		}
	}
	return spec
}
