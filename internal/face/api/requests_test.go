// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
)

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
	held, err := c.Resume(t.Context(), ResumeRequest{plan.Which{Images: []string{"velum"}}})
	require.NoError(t, err)
	assert.Empty(t, held)
	d.resume = func(names []string, all bool) ([]string, error) {
		assert.Empty(t, names)
		assert.True(t, all)
		return []string{"*", "a/velum"}, nil
	}
	held, err = c.Resume(t.Context(), ResumeRequest{plan.Which{All: true}})
	require.NoError(t, err)
	assert.Equal(t, []string{"*", "a/velum"}, held)
	d.resume = func([]string, bool) ([]string, error) { return nil, fmt.Errorf("frob: %w", plan.ErrUnknownImage) }
	_, err = c.Resume(t.Context(), ResumeRequest{plan.Which{All: true}})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
}
