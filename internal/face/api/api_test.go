// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	mu      sync.Mutex // guards the answers: the race detector does not see that the bus is between two calls
	status  status.Status
	check   func(hear func(status.Progress)) (status.Status, error)
	apply   func(names []string, hear func(status.Progress)) ([]status.Outcome, error)
	hold    func(names []string, all bool, reason string, until time.Time) ([]string, error)
	resume  func(names []string, all bool) ([]string, error)
	context func(context.Context)
}

func (d *daemon) Status() status.Status { return d.status }

// answers returns what was given, and tells the test of the call.
func (d *daemon) answers(ctx context.Context) *daemon {
	d.mu.Lock()
	now := &daemon{check: d.check, apply: d.apply, hold: d.hold, resume: d.resume, context: d.context}
	d.mu.Unlock()
	if now.context != nil {
		now.context(ctx)
	}
	return now
}

func (d *daemon) Check(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.answers(ctx).check(hear)
}

func (d *daemon) ReleaseLock(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.ForgetCatalog(ctx, hear)
}

func (d *daemon) EnableLocalRegistry(ctx context.Context, registry string, gate bool) (status.Status, error) {
	s, err := d.Check(ctx, nil)
	s.Reason = fmt.Sprintf("enabled %s %t", registry, gate)
	if registry == "there.example" {
		err = agent.ErrNothingToDo
	}
	return s, err
}

func (d *daemon) DisableLocalRegistry(ctx context.Context, registry string) (status.Status, error) {
	s, err := d.Check(ctx, nil)
	s.Reason = "disabled " + registry
	return s, err
}

func (d *daemon) TryLock(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.ForgetCatalog(ctx, hear)
}

func (d *daemon) ForgetCatalog(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	s, err := d.Check(ctx, hear)
	s.Reason = "forgotten"
	return s, err
}

func (d *daemon) Apply(
	ctx context.Context, req agent.ApplyRequest, hear func(status.Progress),
) ([]status.Outcome, error) {
	names := namesOf(req.Which)
	if req.Retry {
		names = append(names, "again")
	}
	for _, e := range req.Expect {
		names = append(names, e.Image+"="+e.Digest.String())
	}
	return d.answers(ctx).apply(names, hear)
}

func (d *daemon) Rollback(
	ctx context.Context, which plan.Which, hear func(status.Progress),
) ([]status.Outcome, error) {
	return d.answers(ctx).apply(append(namesOf(which), "back"), hear)
}

// namesOf has "*" for all.
func namesOf(w plan.Which) []string {
	if w.All {
		return []string{"*"}
	}
	return slices.Clone(w.Images)
}

func (d *daemon) Hold(
	ctx context.Context, names []string, all bool, reason string, until time.Time,
) ([]string, error) {
	return d.answers(ctx).hold(names, all, reason, until)
}

func (d *daemon) Resume(ctx context.Context, names []string, all bool) ([]string, error) {
	return d.answers(ctx).resume(names, all)
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

func serveAt(t *testing.T, path string, readOnly bool, d Daemon) *Server {
	t.Helper()
	s, err := Listen(t.Context(), path, readOnly, d, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	serving(t, s)
	return s
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
	_, err = c.Resume(t.Context(), plan.All())
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
	assert.Equal(t, []status.Progress{{Reference: "r", Phase: "downloading", Done: 1, Total: 2}}, heard)
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

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), path, true, &daemon{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s.Metrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }))
	serving(t, s)
	assert.Equal(t, "up 1\n", get(t, path))
	_, err = patient(path).do(t.Context(), http.MethodPost, "/metrics", nil)
	require.ErrorContains(t, err, "405 Method Not Allowed")
}

// The status of 5,000 containers, each with a rebuild that waits, is published and read whole.
func TestStatusOfALargeNode(t *testing.T) {
	t.Parallel()
	s := status.Status{SchemaVersion: status.StatusSchemaVersion}
	for n := range 5000 {
		image, file := fmt.Sprintf("registry.suse.com/caasp/v4/image%d", n), fmt.Sprintf("pod%d.yaml", n/4)
		is := &status.Named{Tag: "4.0.0-rev1-build1.1", Digest: digest.FromString("1")}
		s.Images = append(s.Images, status.ImageStatus{
			Image: image, Container: fmt.Sprintf("container%d", n), PodManifest: file, Follow: "4.0.0-rev1",
			Running: is, Offered: is, LastKnownGood: is, Previous: is, Change: "rebuild", Staged: true,
			Host: "registry.suse.com", Created: &s.Written,
		})
		s.Sources = append(s.Sources, status.SourceStatus{Repository: image, Host: "registry.suse.com", LastSuccess: &s.Written})
		s.Updates = append(s.Updates, status.AnnouncedUpdate{Image: image, Change: "rebuild", From: is.Tag, To: is.Tag, Digest: is.Digest})
		if n%4 == 0 {
			s.PodManifests = append(s.PodManifests, status.PodStatus{
				PodManifest: file, Change: "rebuild", Edits: []status.Edit{{Container: "container", Field: status.EditImage, From: is.Tag, To: is.Tag}},
			})
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	assert.Less(t, len(text), status.MaxStatus)
	assert.Empty(t, status.DropFrom(&s, "status", status.MaxStatus, nil))
	got, err := patient(serve(t, true, &daemon{status: s})).Status(t.Context())
	require.NoError(t, err)
	assert.Len(t, got.Images, 5000)
	assert.Len(t, properties(s)["Images"].Value(), maxListed)
	assert.Contains(t, properties(s)["Cut"].Value(), "Images", "the bus says what it cuts")
}

// A client was told that the daemon had ended, or nothing at all, and nobody else heard of it.
func TestWhatCannotBeWrittenIsAnErrorAndNoEmptyAnswer(t *testing.T) {
	t.Parallel()
	unwritable := status.Status{SchemaVersion: 1, Since: time.Date(10_000, time.January, 1, 0, 0, 0, 0, time.UTC)}
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), path, false, &daemon{
		status: unwritable,
		check:  func(func(status.Progress)) (status.Status, error) { return unwritable, nil },
	}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	c := NewClient(path)
	_, err = c.Status(t.Context())
	require.ErrorContains(t, err, "500 Internal Server Error: status: ")
	require.ErrorContains(t, err, "year outside of range")
	_, err = c.Check(t.Context(), nil)
	require.ErrorContains(t, err, "result: ")
	require.ErrorContains(t, err, "year outside of range")
	require.NoError(t, s.Drain(time.Minute))
	require.NoError(t, <-ended)
	assert.Contains(t, log.String(), `level=ERROR msg="cannot write the status"`)
	assert.Contains(t, log.String(), `level=ERROR msg="cannot write the result" request=/v1/check`)
}

// badRequests are bodies that are refused before anything is done, by path.
var badRequests = map[string]map[string]string{
	"/v1/apply": {
		"no JSON":        "velum",
		"another type":   `{"images": 1}`,
		"an unknown key": `{"images": [], "force": true}`,
		"two requests":   `{"images": ["velum"]} {"retry": true}`,
		"half a second":  `{"images": ["velum"]} {`,
		"too large":      `{"images": ["` + strings.Repeat("x", maxRequest) + `"]}`,
	},
	"/v1/hold": {
		"no JSON":               "velum",
		"an unknown key":        `{"all": true, "forever": true}`,
		"nothing":               `{"reason": "because"}`,
		"no images":             `{"images": []}`,
		"images and all":        `{"images": ["velum"], "all": true}`,
		"a reason of two lines": `{"all": true, "reason": "a\nb"}`,
		"a time of day":         `{"all": true, "until": "18:00"}`,
		"too large":             `{"images": ["` + strings.Repeat("x", maxRequest) + `"]}`,
	},
	"/v1/resume": {
		"no JSON":        "velum",
		"a reason":       `{"all": true, "reason": "because"}`,
		"nothing":        `{}`,
		"images and all": `{"images": ["velum"], "all": true}`,
		"two requests":   `{"all": true} {"all": true}`,
	},
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	path := serve(t, false, &daemon{}) // a call of it would panic
	for where, bodies := range badRequests {
		for name, body := range bodies {
			t.Run(where+" "+name, func(t *testing.T) {
				t.Parallel()
				_, err := patient(path).do(t.Context(), http.MethodPost, where, []byte(body))
				require.ErrorContains(t, err, "400")
				require.ErrorContains(t, err, strings.TrimPrefix(where, "/v1/")+": request: ")
			})
		}
	}
}

func TestHoldSaysWhichWhyAndUntilWhen(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, time.December, 24, 0, 0, 0, 0, time.UTC)
	d := &daemon{}
	c := patient(serve(t, false, d))
	d.hold = func(names []string, all bool, reason string, until time.Time) ([]string, error) {
		assert.Equal(t, []string{"velum", "etcd"}, names)
		assert.False(t, all)
		assert.Equal(t, "because", reason)
		assert.Equal(t, end, until)
		return []string{"a/velum", "a/etcd"}, nil
	}
	held, err := c.Hold(t.Context(), HoldRequest{
		Which: plan.Which{Images: []string{"velum", "etcd"}}, Reason: "because", Until: end,
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"a/velum", "a/etcd"}, held)

	d.hold = func(names []string, all bool, _ string, until time.Time) ([]string, error) {
		assert.Empty(t, names)
		assert.True(t, all)
		assert.Zero(t, until, "no end is no end on the other side")
		return nil, fmt.Errorf("frob: %w", plan.ErrUnknownImage)
	}
	_, err = c.Hold(t.Context(), HoldRequest{Which: plan.Which{All: true}})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
}

func TestResumeBringsWhatWasHeld(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	c := patient(serve(t, false, d))
	d.resume = func(names []string, all bool) ([]string, error) {
		assert.Equal(t, []string{"velum"}, names)
		assert.False(t, all)
		return nil, nil
	}
	held, err := c.Resume(t.Context(), plan.Named("velum"))
	require.NoError(t, err)
	assert.Empty(t, held)
	d.resume = func(names []string, all bool) ([]string, error) {
		assert.Empty(t, names)
		assert.True(t, all)
		return []string{"*", "a/velum"}, nil
	}
	held, err = c.Resume(t.Context(), plan.All())
	require.NoError(t, err)
	assert.Equal(t, []string{"*", "a/velum"}, held)
	d.resume = func([]string, bool) ([]string, error) { return nil, fmt.Errorf("frob: %w", plan.ErrUnknownImage) }
	_, err = c.Resume(t.Context(), plan.All())
	require.ErrorIs(t, err, plan.ErrUnknownImage)
}
