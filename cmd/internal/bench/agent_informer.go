package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// watchAll is the reference of everything that follows the cluster: a bare dynamic
// informer of each kind, which does nothing but to call changed. It returns when
// all are in sync; they end with ctx.
func watchAll(ctx context.Context, config *rest.Config, changed func(*unstructured.Unstructured)) error {
	client, err := dynamic.NewForConfig(unlimited(config))
	if err != nil {
		return err
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	handlers := cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) { changed(now.(*unstructured.Unstructured)) },
	}
	for kind := range kinds {
		if _, err := informers.ForResource(resourceOf(kind)).Informer().AddEventHandler(handlers); err != nil {
			return err
		}
	}
	informers.Start(ctx.Done())
	for resource, ok := range informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("wait for the informer of %s: %w", resource, ctx.Err())
		}
	}
	return nil
}

// bareInformer is watchAll as a process of its own.
type bareInformer struct {
	cmd  *exec.Cmd
	done chan error
}

// informerChild is the child's part: it tells by a file that it is in sync, and runs
// until it is interrupted.
func informerChild(ctx context.Context, args []string) (map[string]float64, error) {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return nil, err
	}
	if err := watchAll(ctx, config, func(*unstructured.Unstructured) {}); err != nil {
		return nil, err
	}
	if err := os.WriteFile(args[1], []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return map[string]float64{}, nil
}

// informer starts a bare informer and waits until it is in sync. The caller stops it.
func (b *bench) informer(ctx context.Context, kubeconfig string) (*bareInformer, error) {
	dir, err := b.folder("informer")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	synced := dir + "/synced"
	i := &bareInformer{cmd: exec.Command(self, childFlag, "informer", kubeconfig, synced), done: make(chan error, 1)}
	i.cmd.Stderr = os.Stderr
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { i.done <- i.cmd.Wait() }()
	err = poll(ctx, 5*time.Minute, func() error {
		_, err := os.Stat(synced)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the bare informer: %w", err), i.stop())
	}
	return i, nil
}

func (i *bareInformer) stop() error {
	return errors.Join(i.cmd.Process.Signal(syscall.SIGTERM), <-i.done)
}
