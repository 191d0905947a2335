package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// writer changes objects of the shared cluster. It reads no more of the server's
// answers than it must: its own work is not to be what is measured.
type writer struct {
	client   *http.Client
	url      string
	objects  int
	revision atomic.Int64 // of the last change; each change has one of its own
}

func newWriter(config *rest.Config, objects int) (*writer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	w := &writer{client: client, url: strings.TrimSuffix(config.Host, "/"), objects: objects}
	if !strings.Contains(w.url, "://") {
		w.url = "https://" + w.url
	}
	w.revision.Store(time.Now().UnixMilli()) // so that no earlier one comes again
	return w, nil
}

// change gives the i-th object a new revision, and returns it and when the server
// had it.
func (w *writer) change(ctx context.Context, i int) (revision int64, at time.Time, err error) {
	revision = w.revision.Add(1)
	resource, namespace, name := place(i)
	url := fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/%s/%s?fieldManager=bench", w.url, resource.Group, resource.Version, namespace, resource.Resource, name)
	body := strings.NewReader(fmt.Sprintf(`{"spec":{"revision":%d}}`, revision))
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, body)
	if err != nil {
		return 0, at, err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := w.client.Do(request)
	if err != nil {
		return 0, at, err
	}
	at = time.Now()
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, at, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, at, fmt.Errorf("change %s %s/%s: %s", resource.Resource, namespace, name, response.Status)
	}
	return revision, at, nil
}

// writers is how many changes are under way at the same time when as many as
// possible are made: some for each core that the API server has.
const writers = 16

// flood changes random objects, as fast as the server takes it, for so long. It
// returns how many changes it made for each second.
func (w *writer) flood(ctx context.Context, d time.Duration) (rate float64, changes int64, err error) {
	begin := time.Now()
	var done atomic.Int64
	flood, within := errgroup.WithContext(ctx)
	for range writers {
		flood.Go(func() error {
			for time.Since(begin) < d {
				if _, _, err := w.change(within, rand.IntN(w.objects)); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	if err := flood.Wait(); err != nil {
		return 0, 0, err
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), done.Load(), nil
}
