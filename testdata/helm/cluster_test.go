//go:build e2e

package chart

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// cluster is a real API server with its store. Nothing runs pods in it: that part
// is played by pod.
type cluster struct {
	config  *rest.Config
	typed   kubernetes.Interface
	dynamic dynamic.Interface
	address string
}

// token is what the tests show the API server. It listens on 127.0.0.1 only.
const token = "test"

// startCluster starts etcd and kube-apiserver from SPILLWAY_PEERS.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	peers := os.Getenv("SPILLWAY_PEERS")
	if peers == "" {
		t.Skip("SPILLWAY_PEERS names no folder with kube-apiserver and etcd: run make e2e")
	}
	dir := t.TempDir()
	store, peer, port := freePort(t), freePort(t), freePort(t)
	storeURL, peerURL := "http://127.0.0.1:"+store, "http://127.0.0.1:"+peer
	start(t, dir, filepath.Join(peers, "etcd"), "--data-dir="+dir+"/etcd", "--listen-client-urls="+storeURL, "--advertise-client-urls="+storeURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL)
	key := filepath.Join(dir, "sa.key")
	writeKey(t, key)
	write(t, filepath.Join(dir, "tokens.csv"), token+`,admin,1,"system:masters"`+"\n")
	start(t, dir, filepath.Join(peers, "kube-apiserver"), "--etcd-servers="+storeURL, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port="+port, "--cert-dir="+dir+"/certs", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-account-issuer=https://local", "--token-auth-file="+dir+"/tokens.csv", "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/24", "--disable-admission-plugins=ServiceAccount")
	c := &cluster{address: "https://127.0.0.1:" + port}
	c.config = &rest.Config{Host: c.address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 200, Burst: 200}
	var err error
	c.typed, err = kubernetes.NewForConfig(c.config)
	require.NoError(t, err)
	c.dynamic, err = dynamic.NewForConfig(c.config)
	require.NoError(t, err)
	eventually(t, "the API server is ready", func() error {
		return c.typed.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	return c
}

// start runs a program until the test ends; its log is shown if the test fails.
// Programs stop in the opposite order of their start, as the API server lingers
// without its store.
func start(t *testing.T, dir, program string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not there (%v): make peers builds it", filepath.Base(program), err)
	}
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
	})
	return cmd
}

func writeKey(t *testing.T, file string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// eventually waits for another process, for up to two minutes.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err, "waited for: %s", what)
		}
	}
}

// addOperatorTypes installs the resource definitions of the Prometheus operator,
// from the version whose Go types the other tests decode with.
func (c *cluster) addOperatorTypes(t *testing.T) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring").Output()
	require.NoError(t, err)
	version := string(out[:len(out)-1])
	out, err = exec.Command("go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator@"+version).Output()
	require.NoError(t, err, string(out))
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		text, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+kind+".yaml"))
		require.NoError(t, err)
		require.NoError(t, c.create(t.Context(), string(text), "", false))
		eventually(t, kind+" are known", func() error {
			r := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: kind}
			_, err := c.dynamic.Resource(r).List(t.Context(), meta.ListOptions{})
			return err
		})
	}
}

// create sends one manifest to the API server, which refuses fields that it does
// not know. A dry run passes admission and is not stored.
func (c *cluster) create(ctx context.Context, manifest, namespace string, dry bool) error {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return err
	}
	gvk := object.GroupVersionKind()
	list, err := c.typed.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil {
		return err
	}
	options := meta.CreateOptions{FieldValidation: meta.FieldValidationStrict}
	if dry {
		options.DryRun = []string{meta.DryRunAll}
	}
	for _, r := range list.APIResources {
		if r.Kind != gvk.Kind || r.Name == "" || filepath.Base(r.Name) == "status" {
			continue
		}
		resource := c.dynamic.Resource(gvk.GroupVersion().WithResource(r.Name))
		if r.Namespaced {
			_, err = resource.Namespace(namespace).Create(ctx, &object, options)
		} else {
			_, err = resource.Create(ctx, &object, options)
		}
		return err
	}
	return fmt.Errorf("the API server has no %s", gvk)
}

// helm is Helm's own code, as its command line wires it.
func (c *cluster) helm(t *testing.T, namespace string) *action.Configuration {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	bearer, insecure := token, true
	flags.APIServer, flags.BearerToken, flags.Insecure, flags.Namespace = &c.address, &bearer, &insecure, &namespace
	none := os.DevNull
	flags.KubeConfig = &none
	helm := new(action.Configuration)
	require.NoError(t, helm.Init(flags, namespace, "secret", func(format string, v ...any) { t.Logf("helm: "+format, v...) }))
	return helm
}
