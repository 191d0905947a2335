package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/lease"
	"github.com/crmirror/crmirror/sync"
)

// newLease prepares the agent's part in the election, if there is one.
func (a *app) newLease(s *session, conn *rest.Config) error {
	e := s.cfg.LeaderElection
	if a.measured == nil || !e.Enabled { // only the agent takes part
		return nil
	}
	namespace := e.Namespace
	if namespace == "" {
		var err error
		if namespace, _, err = a.kube.loader().Namespace(); err != nil {
			return fmt.Errorf("find the namespace of the lease: %w; name it with leaderElection.namespace", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this agent in the lease: %w", err)
	}
	s.identity = host + "_" + rand.Text()[:8] // a restarted process is another one
	s.lease, err = lease.New(conn, lease.Options{
		Namespace: namespace, Name: s.cfg.LeaseName(), Identity: s.identity,
		Duration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod, Log: s.log,
	})
	return err
}

// leaseOf is the lease as sync sees it; nil where there is none.
func (s *session) leaseOf() sync.Lease {
	if s.lease == nil {
		return nil
	}
	return s.lease
}

// work runs the loop: at once or, with a lease, when this agent has it. The lease is given
// back after the loop's last flush.
//
// An agent that lost the lease ends, as is the custom, and does not stand by again: that a
// process is gone is the one proof that nothing of it goes on. Who started it starts it anew.
func (s *session) work(ctx context.Context, loop *sync.Loop, leads func(bool)) (err error) {
	if s.lease == nil {
		return loop.Run(ctx)
	}
	elect, cancel := context.WithCancel(context.WithoutCancel(ctx))
	election := make(chan error, 1)
	go func() { election <- s.lease.Run(elect) }()
	defer func() {
		cancel()
		lost := <-election
		if errors.Is(lost, lease.ErrLost) {
			err = fmt.Errorf("%w; this agent ends, so that nothing of it goes on while another one leads; started again it stands by", lost)
			return
		}
		err = errors.Join(err, lost)
	}()
	leads(false)
	if loop.Standby(ctx, s.lease.Acquired(), s.fleet.Relist) != nil {
		return nil // stopped while standing by
	}
	leads(true)
	defer leads(false)
	s.log.WithField("lease", s.lease.String()).Info("leading")
	loop.Under(s.lease)
	return loop.Run(ctx)
}

// standing says for /readyz what part this agent has; "" without an election.
func (s *session) standing() string {
	switch {
	case s.lease == nil:
		return ""
	case s.lease.Held() == nil:
		return "leading with lease " + s.lease.String()
	}
	return fmt.Sprintf("standing by; lease %s is held by %s", s.lease, cmp.Or(s.lease.Holder(), "nobody yet"))
}

// leaseErr says why the lease cannot be used; nil if it can, or there is none.
func (s *session) leaseErr() error {
	if s.lease == nil {
		return nil
	}
	return s.lease.Err()
}
