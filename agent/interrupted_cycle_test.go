// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A release that was rolled back meanwhile stays denied: a continued apply removes only denials
// older than itself.
func TestContinuedApplySkipsAReleaseRolledBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.pulls(endless)
		answer := n.asks(t)
		applied := make(chan []status.Outcome, 1)
		go func() {
			out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml", "velum.yaml"), Retry: true}, nil)
			assert.NoError(t, err)
			applied <- out
		}()
		pass(time.Minute)
		require.NoError(t, n.requests(t)["rollback"]())
		before, _ := n.Node.Container("velum.yaml", "main")
		n.pulls(nil)
		require.NoError(t, n.requests(t)["hold"]())
		require.NoError(t, n.requests(t)["unhold"]())
		<-applied
		<-answer
		n.runs("velum.yaml", "main", before.Digests[0])
		assert.NotNil(t, podOf(n.Status(), "velum.yaml").RolledBack)
	})
}

// An interrupted cycle continues after its caller hangs up.
func TestInterruptedCycleContinuesWithoutItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.source.hangs(dex)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = n.Check(ctx, nil) }()
		synctest.Wait()
		n.Node.SetKubelet(false)
		written := n.written("velum.yaml")
		go func() {
			<-written
			cancel()
			n.source.hangs("")
			n.Node.SetKubelet(true)
			n.Node.Sync()
		}()
		require.NoError(t, n.requests(t)["rollback"]())
		pass(time.Second)
		assert.True(t, image(n.Status(), "dex.yaml", "main").Staged)
		assert.NotEmpty(t, n.Status().Updates)
	})
}

// The last interrupted cycle continues first: an apply does not wait for the check that it has
// interrupted.
func TestLastInterruptedCycleContinuesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		n.Policy.MaxParallelStages = 1
		n.Node.OnStage = func(ctx context.Context, r release.Release) error {
			if r.Repository == dex {
				return endless(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return ctx.Err()
		}
		require.NoError(t, n.requests(t)["reload"]())
		answer := n.asks(t)
		applied := make(chan []status.Outcome, 1)
		go func() {
			out, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("db.yaml")}, nil)
			assert.NoError(t, err)
			applied <- out
		}()
		pass(5 * time.Second)
		require.NoError(t, n.requests(t)["hold"]())
		pass(time.Minute)
		require.Len(t, applied, 1)
		assert.Equal(t, status.ResultApplied, (<-applied)[0].Result)
		n.end()
		<-answer
	})
}

// A request that restarts pods is done as one, whoever else waits.
func TestRollbackOfSeveralPodsIsNotInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.Registry.Release(mariadb, "4.0.0", 1, "1.2")
		<-n.asks(t)
		require.NoError(t, n.requests(t)["apply"]())
		n.Policy.Settle = 10 * time.Second
		require.NoError(t, n.requests(t)["reload"]())
		results := make(chan []status.Outcome, 1)
		go func() {
			out, err := n.Rollback(t.Context(), plan.Named("velum.yaml", "db.yaml"), nil)
			assert.NoError(t, err)
			results <- out
		}()
		pass(5 * time.Second)
		require.NoError(t, n.requests(t)["hold"]())
		for _, o := range <-results {
			assert.Equal(t, status.ResultRolledBack, o.Result, o.PodManifest)
		}
	})
}
