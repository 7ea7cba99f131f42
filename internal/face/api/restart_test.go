// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestReloadTellsHowItWent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(t.Context(), path, false, &daemon{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	answers := make(chan error, 2)
	answers <- nil
	answers <- errors.New("config.yaml:1: unknown key")
	s.Reload(func(context.Context) error { return <-answers })
	serving(t, s)
	c := patient(path)
	require.NoError(t, c.Reload(t.Context()))
	require.EqualError(t, c.Reload(t.Context()), "config.yaml:1: unknown key")
	require.ErrorContains(t, patient(serve(t, true, &daemon{})).Reload(t.Context()), "404", "the status socket only reads")
}

// serving has the server serve until the test ends.
func serving(t *testing.T, s *Server) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-ended)
	})
}

// handedOver is a socket as the service manager has one, and the descriptor that
// it gives to a daemon.
func handedOver(t *testing.T) (path string, next func() net.Listener) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	managers, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, managers.Close()) })
	return path, func() net.Listener {
		file, err := managers.(*net.UnixListener).File()
		require.NoError(t, err)
		given, err := net.FileListener(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		return given
	}
}

// A daemon ends and another one begins: who asked the first is answered, who
// comes between them is served by the second.
func TestARestartLosesNoClient(t *testing.T) {
	t.Parallel()
	path, next := handedOver(t)
	log := slog.New(slog.DiscardHandler)
	first := On(next(), true, &daemon{}, log)
	asked, answer := make(chan struct{}), make(chan struct{})
	first.Metrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "from the first")
	}))
	served, got, drained := make(chan error, 1), make(chan string, 1), make(chan error, 1)
	go func() { served <- first.Serve() }()
	go func() { got <- get(t, path) }()
	<-asked
	go func() { drained <- first.Drain(time.Minute) }()
	require.NoError(t, <-served, "it takes nobody any more")

	statuses := make(chan status.Status, 1)
	go func() {
		s, err := patient(path).Status(t.Context())
		assert.NoError(t, err)
		statuses <- s
	}()
	close(answer)
	assert.Equal(t, "from the first", <-got)
	require.NoError(t, <-drained)
	assert.FileExists(t, path, "the socket is the manager's")

	serving(t, On(next(), true, &daemon{status: status.Status{Reason: "from the second"}}, log))
	assert.Equal(t, "from the second", (<-statuses).Reason)
}

// A client may come at any moment of a restart, the one between accept(2) and the
// server's first look at it included.
func TestManyRestartsLoseNoClient(t *testing.T) {
	t.Parallel()
	path, next := handedOver(t)
	log := slog.New(slog.DiscardHandler)
	var clients sync.WaitGroup
	enough := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				if _, err := patient(path).Status(t.Context()); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	for range 100 {
		s := On(next(), true, &daemon{}, log)
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()
		_, err := patient(path).Status(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Drain(time.Minute))
		require.NoError(t, <-served)
	}
	close(enough)
	serving(t, On(next(), true, &daemon{}, log))
	clients.Wait()
}

func get(t *testing.T, path string) string {
	t.Helper()
	body, err := patient(path).do(t.Context(), http.MethodGet, "/metrics", nil)
	if !assert.NoError(t, err) {
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	assert.NoError(t, err)
	return string(text)
}

func TestTheEndWaitsForNoneTooLong(t *testing.T) {
	t.Parallel()
	path, next := handedOver(t)
	s := On(next(), true, &daemon{}, slog.New(slog.DiscardHandler))
	asked := make(chan struct{})
	s.Metrics(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	served, failed := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve() }()
	go func() {
		_, err := patient(path).do(t.Context(), http.MethodGet, "/metrics", nil)
		failed <- err
	}()
	<-asked
	require.NoError(t, s.Drain(time.Millisecond))
	require.NoError(t, <-served)
	require.ErrorIs(t, <-failed, io.EOF)
}

// The manager's socket takes clients while the daemon waits for its next start.
func TestNobodyBehindTheSocketIsNoDaemon(t *testing.T) {
	t.Parallel()
	path, _ := handedOver(t)
	c := patient(path)
	c.patience = time.Millisecond
	_, err := c.Status(t.Context())
	require.ErrorIs(t, err, ErrNoDaemon)
	require.ErrorContains(t, err, "no daemon answers within 1ms")

	ended, end := context.WithCancel(t.Context())
	end()
	_, err = patient(path).Status(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrNoDaemon, "the caller has given up")
}
