// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes a connection whose request it did not read.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// daemon is a Daemon whose answers a test gives.
type daemon struct {
	status  status.Status
	check   func(hear func(status.Progress)) (status.Status, error)
	apply   func(names []string, hear func(status.Progress)) ([]status.Outcome, error)
	hold    func(names []string, all bool, reason string, until time.Time) ([]string, error)
	resume  func(names []string, all bool) ([]string, error)
	context func(context.Context)
}

func (d *daemon) Status() status.Status { return d.status }

func (d *daemon) Check(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	if d.context != nil {
		d.context(ctx)
	}
	return d.check(hear)
}

func (d *daemon) ReleaseLock(_ context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.ForgetCatalog(context.Background(), hear)
}

func (d *daemon) EnableLocalRegistry(_ context.Context, registry string, gate bool) (status.Status, error) {
	s, err := d.check(nil)
	s.Reason = fmt.Sprintf("enabled %s %t", registry, gate)
	if registry == "there.example" {
		err = agent.ErrNothingToDo
	}
	return s, err
}

func (d *daemon) DisableLocalRegistry(_ context.Context, registry string) (status.Status, error) {
	s, err := d.check(nil)
	s.Reason = "disabled " + registry
	return s, err
}

func (d *daemon) TryLock(_ context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.ForgetCatalog(context.Background(), hear)
}

func (d *daemon) ForgetCatalog(_ context.Context, hear func(status.Progress)) (status.Status, error) {
	s, err := d.check(hear)
	s.Reason = "forgotten"
	return s, err
}

func (d *daemon) Apply(
	ctx context.Context, req agent.ApplyRequest, hear func(status.Progress),
) ([]status.Outcome, error) {
	if d.context != nil {
		d.context(ctx)
	}
	names := namesOf(req.Which)
	if req.Retry {
		names = append(names, "again")
	}
	for _, e := range req.Expect {
		names = append(names, e.Image+"="+e.Digest.String())
	}
	return d.apply(names, hear)
}

func (d *daemon) Rollback(
	ctx context.Context, which plan.Which, hear func(status.Progress),
) ([]status.Outcome, error) {
	if d.context != nil {
		d.context(ctx)
	}
	return d.apply(append(namesOf(which), "back"), hear)
}

// namesOf has "*" for all.
func namesOf(w plan.Which) []string {
	if w.All {
		return []string{"*"}
	}
	return slices.Clone(w.Images)
}

func (d *daemon) Hold(
	_ context.Context, names []string, all bool, reason string, until time.Time,
) ([]string, error) {
	return d.hold(names, all, reason, until)
}

func (d *daemon) Resume(_ context.Context, names []string, all bool) ([]string, error) {
	return d.resume(names, all)
}

// patient is a client that waits for a daemon on a machine that has all hands full.
func patient(path string) *Client {
	c := NewClient(path)
	c.patience = time.Minute
	return c
}

// serve opens a socket for the length of the test.
func serve(t *testing.T, readOnly bool, d Daemon) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	serveAt(t, path, readOnly, d)
	return path
}

func serveAt(t *testing.T, path string, readOnly bool, d Daemon) {
	t.Helper()
	s, err := Listen(t.Context(), path, readOnly, d, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
	})
}

func TestStatusIsForBothSockets(t *testing.T) {
	t.Parallel()
	want := status.Status{SchemaVersion: 1, State: status.StateStaged, Reason: "because", Images: []status.ImageStatus{{Image: "a"}}}
	for _, readOnly := range []bool{false, true} {
		got, err := patient(serve(t, readOnly, &daemon{status: want})).Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestTheActingSocketIsRootsAlone(t *testing.T) {
	t.Parallel()
	for readOnly, want := range map[bool]fs.FileMode{false: 0o600, true: 0o666} {
		info, err := os.Stat(serve(t, readOnly, &daemon{}))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm())
	}
}

func TestTheStatusSocketOnlyReads(t *testing.T) {
	t.Parallel()
	c := patient(serve(t, true, &daemon{})) // a call of check or apply would panic
	_, err := c.Check(t.Context(), nil)
	require.ErrorContains(t, err, "404")
	_, err = c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
	require.ErrorContains(t, err, "404")
	_, err = c.Rollback(t.Context(), plan.All(), nil)
	require.ErrorContains(t, err, "404")
	_, err = c.Hold(t.Context(), HoldRequest{Which: plan.All()})
	require.ErrorContains(t, err, "404")
	_, err = c.Resume(t.Context(), ResumeRequest{plan.All()})
	require.ErrorContains(t, err, "404")
}

func TestCheckStreamsProgressAndThenTheStatus(t *testing.T) {
	t.Parallel()
	want := status.Status{SchemaVersion: 1, State: status.StateCurrent}
	c := patient(serve(t, false, &daemon{check: func(hear func(status.Progress)) (status.Status, error) {
		hear(status.Progress{Reference: "r", Phase: "downloading", Done: 1, Total: 2})
		return want, nil
	}}))
	var heard []status.Progress
	got, err := c.Check(t.Context(), func(p status.Progress) { heard = append(heard, p) })
	require.NoError(t, err)
	assert.Equal(t, &want, got)
	// The result may overtake progress: that is only for the eye.
	for _, p := range heard {
		assert.Equal(t, status.Progress{Reference: "r", Phase: "downloading", Done: 1, Total: 2}, p)
	}
}

func TestAFloodOfProgressLosesNoResult(t *testing.T) {
	t.Parallel()
	c := patient(serve(t, false, &daemon{check: func(hear func(status.Progress)) (status.Status, error) {
		for range 100_000 {
			hear(status.Progress{Phase: "downloading"})
		}
		return status.Status{SchemaVersion: 1}, errors.New("the registry is away")
	}}))
	s, err := c.Check(t.Context(), nil)
	require.EqualError(t, err, "the registry is away")
	assert.Equal(t, 1, s.SchemaVersion, "a failed check shows what is known all the same")
}

func TestApplyNamesImagesAndBringsOutcomes(t *testing.T) {
	t.Parallel()
	want := []status.Outcome{{PodManifest: "velum.yaml", Change: "rebuild", Result: status.ResultHeld, Reason: "busy"}}
	var names []string
	c := patient(serve(t, false, &daemon{apply: func(n []string, _ func(status.Progress)) ([]status.Outcome, error) {
		names = n
		return want, nil
	}}))
	got, err := c.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")}, nil)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, []string{"velum"}, names)
	_, err = c.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum"), Retry: true}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"velum", "again"}, names)
	got, err = c.Rollback(t.Context(), plan.Named("velum"), nil)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, []string{"velum", "back"}, names)
	_, err = c.Rollback(t.Context(), plan.All(), nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"*", "back"}, names)
	names = nil
	_, err = c.Rollback(t.Context(), plan.Which{}, nil)
	require.ErrorContains(t, err, "give names of images or all images, not both")
	_, err = c.Apply(t.Context(), agent.ApplyRequest{}, nil)
	require.ErrorContains(t, err, "give names of images or all images, not both")
	_, err = c.Apply(t.Context(), agent.ApplyRequest{Which: plan.Which{All: true, Images: []string{"velum"}}}, nil)
	require.ErrorContains(t, err, "give names of images or all images, not both")
	assert.Nil(t, names, "nothing named is not everything")
	shown := []plan.Shown{{Image: "velum", Digest: digest.FromString("1")}}
	_, err = c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All(), Expect: shown}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"*", "velum=" + digest.FromString("1").String()}, names)
	shown[0].Digest = "sha256:12"
	_, err = c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All(), Expect: shown}, nil)
	require.ErrorContains(t, err, `expect velum: "sha256:12": invalid checksum digest length`)
}

func TestAMovedOfferHasItsFieldsOnTheOtherSide(t *testing.T) {
	t.Parallel()
	want := []plan.Moved{{PodManifest: "velum.yaml", Image: "velum", Expected: digest.FromString("1"), Tag: "4.0"}}
	c := patient(serve(t, false, &daemon{apply: func([]string, func(status.Progress)) ([]status.Outcome, error) {
		return nil, fmt.Errorf("apply: %w", &plan.MovedError{Moved: want})
	}}))
	_, err := c.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
	answer, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	assert.Equal(t, KindMoved, answer.Kind)
	assert.Equal(t, want, answer.Moved)
	require.ErrorIs(t, err, release.ErrHeld)
}

// A client reacts to the kind of an error, whatever its text.
func TestErrorsHaveTheirKindOnTheOtherSide(t *testing.T) {
	t.Parallel()
	for kind, fails := range map[string]error{
		KindUnknownImage: plan.ErrUnknownImage, KindHeld: release.ErrHeld, KindInvalidArgs: agent.ErrHoldEnds,
		KindFailed: errors.New("frob: no such image or pod manifest"), // its text alone is not its kind
	} {
		want := fmt.Errorf("frob: %w, it seems", fails)
		c := patient(serve(t, false, &daemon{apply: func([]string, func(status.Progress)) ([]status.Outcome, error) {
			return nil, want
		}}))
		_, err := c.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("frob")}, nil)
		require.EqualError(t, err, want.Error())
		answer, ok := errors.AsType[*Error](err)
		require.True(t, ok)
		assert.Equal(t, kind, answer.Kind)
		assert.Equal(t, kind == KindUnknownImage, errors.Is(err, plan.ErrUnknownImage))
		assert.Equal(t, kind == KindHeld, errors.Is(err, release.ErrHeld))
	}
}

// A daemon that ends has no status, and an older one no kinds.
func TestResultsOfOtherDaemons(t *testing.T) {
	t.Parallel()
	c := patient(serve(t, false, &daemon{check: func(func(status.Progress)) (status.Status, error) {
		return status.Status{}, agent.ErrEnded
	}}))
	s, err := c.Check(t.Context(), nil)
	require.EqualError(t, err, agent.ErrEnded.Error())
	assert.Nil(t, s)
	require.ErrorIs(t, resultError(ResultEvent{Error: "frob: no such image or pod manifest", Unknown: true}), plan.ErrUnknownImage)
}

func TestAClientWhoHangsUpIsNotTheEndOfTheWork(t *testing.T) {
	t.Parallel()
	begun, gone, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	path := serve(t, false, &daemon{
		context: func(ctx context.Context) {
			close(begun)
			<-ctx.Done() // the server has noticed
			close(gone)
		},
		check: func(func(status.Progress)) (status.Status, error) {
			close(done)
			return status.Status{}, nil
		},
	})
	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-begun; hangUp() }()
	_, err := patient(path).Check(ctx, nil)
	require.Error(t, err)
	<-gone
	<-done
}

// Ctrl-C in an apply: the daemon hears of it, and the client what has become of it.
func TestALeavingClientHearsWhatGoesOn(t *testing.T) {
	t.Parallel()
	want := []status.Outcome{
		{PodManifest: "etcd.yaml", Result: status.ResultContinues}, {PodManifest: "velum.yaml", Result: status.ResultCanceled},
	}
	for name, ask := range map[string]func(context.Context, *Client) ([]status.Outcome, error){
		"apply": func(ctx context.Context, c *Client) ([]status.Outcome, error) {
			return c.Apply(ctx, agent.ApplyRequest{Which: plan.All()}, nil)
		},
		"rollback": func(ctx context.Context, c *Client) ([]status.Outcome, error) {
			return c.Rollback(ctx, plan.All(), nil)
		},
	} {
		begun := make(chan struct{})
		path := serve(t, false, &daemon{
			context: func(ctx context.Context) { close(begun); <-ctx.Done() },
			apply:   func([]string, func(status.Progress)) ([]status.Outcome, error) { return want, nil },
		})
		ctx, leave := context.WithCancel(t.Context())
		go func() { <-begun; leave() }()
		got, err := ask(ctx, patient(path))
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
}

// What waits in the queue is not begun.
func TestALeavingClientHearsThatNothingBegan(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	path := serve(t, false, &daemon{
		context: func(ctx context.Context) { close(begun); <-ctx.Done() },
		apply: func([]string, func(status.Progress)) ([]status.Outcome, error) {
			return nil, fmt.Errorf("%w: %w", agent.ErrCanceled, context.Canceled)
		},
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-begun; leave() }()
	_, err := patient(path).Apply(ctx, agent.ApplyRequest{Which: plan.All()}, nil)
	answer, ok := errors.AsType[*Error](err)
	require.True(t, ok, err)
	assert.Equal(t, KindCanceled, answer.Kind)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = patient(path).Apply(ended, agent.ApplyRequest{Which: plan.All()}, nil)
	require.ErrorIs(t, err, context.Canceled, "it never asked")
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	_, err := patient(path).Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon)
	assert.Contains(t, err.Error(), path)

	// A socket that a killed daemon left behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	_, err = patient(path).Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon)

	serveAt(t, path, true, &daemon{status: status.Status{SchemaVersion: 1}})
	s, err := patient(path).Status(t.Context())
	require.NoError(t, err, "the next daemon takes its place")
	assert.Equal(t, 1, s.SchemaVersion)
}

func TestADaemonThatEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	var server *Server
	begun, free := make(chan struct{}), make(chan struct{})
	server, err := Listen(t.Context(), path, false, &daemon{check: func(func(status.Progress)) (status.Status, error) {
		close(begun)
		<-free
		return status.Status{}, nil
	}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	go func() { <-begun; _ = server.Close() }()
	_, err = patient(path).Check(t.Context(), nil)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNoDaemon)
	close(free)
	require.NoError(t, <-ended)
}

func TestForgetCatalogAnswersAsCheckDoes(t *testing.T) {
	t.Parallel()
	d := &daemon{check: func(func(status.Progress)) (status.Status, error) {
		return status.Status{SchemaVersion: 1}, nil
	}}
	s, err := patient(serve(t, false, d)).ForgetCatalog(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, "forgotten", s.Reason)
	_, err = patient(serve(t, true, d)).ForgetCatalog(t.Context(), nil)
	require.Error(t, err, "the status socket changes nothing")
}
