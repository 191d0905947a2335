package restore

import (
	"context"
	"sync"

	"github.com/crmirror/crmirror/gitstore"
)

// lockedRepository lets many read a repository that is for one at a time.
type lockedRepository struct {
	Repository
	mu sync.Mutex
}

func (r *lockedRepository) Read(ctx context.Context, blob gitstore.Hash) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Repository.Read(ctx, blob)
}

func (r *lockedRepository) Prefetch(ctx context.Context, blobs []gitstore.Hash) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Repository.Prefetch(ctx, blobs)
}
