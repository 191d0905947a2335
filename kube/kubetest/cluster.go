// Package kubetest starts a real control plane, etcd and kube-apiserver, for
// tests and for the lab, and loads custom resources into it.
//
// The binaries come from "make controlplane" or from KUBEBUILDER_ASSETS. There
// are no controllers, no scheduler and no kubelet: what is created stays as it
// is, a deleted Namespace stays terminating, and nobody collects garbage.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/crmirror/crmirror/kube/kubetest/reaper"
)

const (
	apiServerName = "kube-apiserver"
	etcdName      = "etcd"

	// startTimeout is generous: a loaded machine with two cores needs half a minute.
	startTimeout = 2 * time.Minute
	// stopTimeout is short: after it the process is killed, which loses nothing
	// that a test still needs.
	stopTimeout = 10 * time.Second
)

// Options say what is special about a control plane. The zero value is right
// for most.
type Options struct {
	// Dir keeps data, certificates, logs and the kubeconfig. Empty means a new
	// temporary folder. Either way it is removed at Stop, unless Keep is set.
	Dir string
	// Keep leaves Dir, with the logs in it, after Stop.
	Keep bool
	// Flags are further flags of kube-apiserver by name, without dashes; a given
	// name replaces the default.
	Flags map[string][]string
}

// Cluster is a running control plane. Authorization is RBAC: Config is a cluster
// administrator, who may do anything; users made with User may do nothing until
// a role is bound to them.
type Cluster struct {
	// Config connects as administrator, without a client-side rate limit that
	// a test would notice.
	Config *rest.Config
	// Kubeconfig is the path of a file that says the same as Config.
	Kubeconfig string
	// Dir holds data, certificates and the logs etcd.log and kube-apiserver.log.
	Dir string

	plane  *envtest.ControlPlane
	reaper *reaper.Reaper
	logs   []*os.File

	stop    sync.Once
	stopErr error
}

// Start starts etcd and kube-apiserver on free ports of the loopback interface
// and waits until they answer. Neither outlives this process, however it ends.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
	binaries, err := assets()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: options.Dir}
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "crmirror-cluster-"); err != nil {
			return nil, fmt.Errorf("create folder of the control plane: %w", err)
		}
	}
	var remove []string
	if !options.Keep {
		remove = append(remove, c.Dir)
	}
	if c.reaper, err = reaper.New(remove...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.prepare(binaries, options.Flags); err != nil {
		return nil, err
	}
	if err := c.plane.Start(); err != nil {
		return nil, fmt.Errorf("start control plane: %w\n%s", err, c.lastWords())
	}
	if c.Config, c.Kubeconfig, err = c.User("admin", "system:masters"); err != nil {
		return nil, err
	}
	return c, c.waitForNamespaces(ctx)
}

// prepare describes the two processes, without starting them.
func (c *Cluster) prepare(binaries string, flags map[string][]string) error {
	data, certs := filepath.Join(c.Dir, "etcd"), filepath.Join(c.Dir, "certs")
	for _, dir := range []string{data, certs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create folder of the control plane: %w", err)
		}
	}
	etcd, err := c.reaper.Wrap(filepath.Join(binaries, etcdName))
	if err != nil {
		return err
	}
	apiServer, err := c.reaper.Wrap(filepath.Join(binaries, apiServerName))
	if err != nil {
		return err
	}
	etcdLog, err := c.openLog(etcdName)
	if err != nil {
		return err
	}
	apiServerLog, err := c.openLog(apiServerName)
	if err != nil {
		return err
	}
	c.plane = &envtest.ControlPlane{
		Etcd: &envtest.Etcd{
			Path: etcd, DataDir: data, Out: etcdLog, Err: etcdLog,
			StartTimeout: startTimeout, StopTimeout: stopTimeout,
		},
		APIServer: &envtest.APIServer{
			Path: apiServer, CertDir: certs, Out: apiServerLog, Err: apiServerLog,
			StartTimeout: startTimeout, StopTimeout: stopTimeout,
		},
	}
	for name, values := range flags {
		c.plane.APIServer.Configure().Set(name, values...)
	}
	return nil
}

// User returns the connection, and the path of a kubeconfig, of a user with a
// client certificate in that name and those groups. The name may be a service
// account's: "system:serviceaccount:NAMESPACE:NAME".
func (c *Cluster) User(name string, groups ...string) (*rest.Config, string, error) {
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: 1000, Burst: 2000})
	if err != nil {
		return nil, "", fmt.Errorf("add user %s: %w", name, err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		return nil, "", fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	file, err := os.CreateTemp(c.Dir, "kubeconfig-")
	if err != nil {
		return nil, "", fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, "", fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	return user.Config(), file.Name(), nil
}

// StopAPIServer ends kube-apiserver and leaves etcd running: an outage.
func (c *Cluster) StopAPIServer() error {
	err := c.plane.APIServer.Stop()
	if err := errors.Join(err, c.reaper.Forget(apiServerName)); err != nil {
		return fmt.Errorf("stop kube-apiserver: %w", err)
	}
	return nil
}

// StartAPIServer starts kube-apiserver again, on the same etcd, port and
// certificates, so that Config and Kubeconfig stay valid.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.plane.APIServer.Start(); err != nil {
		return fmt.Errorf("start kube-apiserver: %w\n%s", err, c.lastWords())
	}
	return c.waitForNamespaces(ctx)
}

// Stop ends both processes and removes the folder unless it is to be kept. It
// may be called more than once, and returns the same error each time.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		var errs []error
		if c.plane != nil {
			errs = append(errs, c.plane.Stop(), c.reaper.Forget(apiServerName), c.reaper.Forget(etcdName))
		}
		for _, log := range c.logs {
			errs = append(errs, log.Close())
		}
		errs = append(errs, c.reaper.Close())
		if err := errors.Join(errs...); err != nil {
			c.stopErr = fmt.Errorf("stop control plane: %w", err)
		}
	})
	return c.stopErr
}

// waitForNamespaces waits until the server made the Namespaces that everything
// else stands on: "default", and "kube-system", whose uid names the cluster.
func (c *Cluster) waitForNamespaces(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("connect to kube-apiserver: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
			if _, last = client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the first namespaces: %w", errors.Join(err, last))
	}
	return nil
}
