package chart

import (
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// strictDecoder reads objects into the types of Kubernetes and of the Prometheus
// operator, and refuses fields that these do not have and fields that stand twice.
func strictDecoder(t testing.TB) runtime.Decoder {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, monitoring.AddToScheme(s))
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}

func decodeAll(t testing.TB, r rendered) []runtime.Object {
	t.Helper()
	decoder := strictDecoder(t)
	var objects []runtime.Object
	for _, manifest := range r.manifests {
		object, _, err := decoder.Decode([]byte(manifest), nil, nil)
		require.NoError(t, err, manifest)
		objects = append(objects, object)
	}
	return objects
}

// TestObjects decodes everything that every value set renders, strictly, and
// checks what ties the objects to each other.
func TestObjects(t *testing.T) {
	r := newRenderer(t)
	for name, set := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			out, err := r.render(set)
			require.NoError(t, err)
			checkObjects(t, decodeAll(t, out))
		})
	}
}

// TestStrictDecoder shows that the decoder can refuse.
func TestStrictDecoder(t *testing.T) {
	for _, bad := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selectors: {a: b}}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ClusterIP}\nspec: {}\n",
		"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\nspec: {endpoints: [{prot: http}]}\n",
	} {
		_, _, err := strictDecoder(t).Decode([]byte(bad), nil, nil)
		require.True(t, runtime.IsStrictDecodingError(err), "%v of\n%s", err, bad)
	}
}

func checkObjects(t *testing.T, objects []runtime.Object) {
	var set *apps.StatefulSet
	maps := map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.StatefulSet:
			require.Nil(t, set, "one StatefulSet")
			set = o
		case *core.ConfigMap:
			maps[o.Name] = true
		}
	}
	require.NotNil(t, set)
	pod := labels.Set(set.Spec.Template.Labels)
	selector := labels.SelectorFromSet(set.Spec.Selector.MatchLabels)
	require.True(t, selector.Matches(pod))
	checkPod(t, set, maps)
	headless := false
	for _, o := range objects {
		switch o := o.(type) {
		case *core.Service:
			checkService(t, o, pod, set)
			headless = headless || o.Name == set.Spec.ServiceName && o.Spec.ClusterIP == core.ClusterIPNone
		case *policyv1.PodDisruptionBudget:
			require.True(t, labels.SelectorFromSet(o.Spec.Selector.MatchLabels).Matches(pod))
		case *monitoring.ServiceMonitor:
			checkServiceMonitor(t, o, objects)
		}
	}
	require.True(t, headless, "a headless Service gives the ingesters their names")
}

func checkService(t *testing.T, s *core.Service, pod labels.Set, set *apps.StatefulSet) {
	require.True(t, labels.SelectorFromSet(s.Spec.Selector).Matches(pod))
	names := map[string]bool{}
	for _, p := range set.Spec.Template.Spec.Containers[0].Ports {
		names[p.Name] = true
	}
	for _, p := range s.Spec.Ports {
		require.True(t, names[p.TargetPort.StrVal], "the container has no port %s", p.TargetPort.StrVal)
	}
}

// checkServiceMonitor requires that one Service is selected: with two, each
// ingester would be scraped twice.
func checkServiceMonitor(t *testing.T, m *monitoring.ServiceMonitor, objects []runtime.Object) {
	selected := 0
	for _, o := range objects {
		s, ok := o.(*core.Service)
		if !ok || !labels.SelectorFromSet(m.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) {
			continue
		}
		selected++
		require.Equal(t, m.Spec.Endpoints[0].Port, s.Spec.Ports[0].Name)
	}
	require.Equal(t, 1, selected)
}

// checkPod checks what makes the pods safe and whole.
func checkPod(t *testing.T, set *apps.StatefulSet, maps map[string]bool) {
	spec := set.Spec.Template.Spec
	c := spec.Containers[0]
	require.True(t, *spec.SecurityContext.RunAsNonRoot)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.False(t, *spec.AutomountServiceAccountToken)
	for _, probe := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		require.True(t, probe != nil && (probe.HTTPGet != nil || probe.TCPSocket != nil))
	}
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			require.True(t, maps[v.ConfigMap.Name], "there is no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for _, v := range set.Spec.VolumeClaimTemplates {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		require.True(t, volumes[m.Name], "there is no volume %s", m.Name)
		require.Empty(t, m.SubPath, "a file that is mounted alone never changes: policies would not reload")
		require.True(t, m.ReadOnly || m.Name == "data")
	}
}
