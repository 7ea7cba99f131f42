// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const velum = "registry.suse.com/caasp/v4/velum"

// What holds a pod back has the remedy that the status has.
func TestWhatHoldsAPod(t *testing.T) {
	t.Parallel()
	pod := plan.PodPlan{File: "velum.yaml", Holds: []status.Hold{
		{Name: status.HoldUnmanaged, Reason: "not listed"}, {Name: status.HoldRequested, Reason: velum + ": because", Image: velum},
	}, Waits: []status.Hold{{Name: status.HoldWindow, Reason: "opens at noon"}}}
	findings := podFindings(pod)
	require.Len(t, findings, 2)
	found(t, findings[0], Warn, "hold: "+velum+": because", "image-update-agent resume velum")
	found(t, findings[1], Warn, "window: opens at noon", "wait for the window")
	findings = podFindings(plan.PodPlan{File: "velum.yaml", Change: "rebuild", Holds: pod.Holds[:1]})
	require.Len(t, findings, 1)
	found(t, findings[0], OK, "rebuild")
}

// An answer of a registry, and what to do about it.
func TestRemedies(t *testing.T) {
	t.Parallel()
	of := func(status int, err error) error { return &release.SourceError{Host: "r1", Status: status, Err: err} }
	verification := func(err error) error { return of(0, &tls.CertificateVerificationError{Err: err}) }
	for remedy, err := range map[string]error{
		"copy the image to the mirror":                of(404, release.ErrNotFound),
		"hosts.toml of r1":                            of(0, errors.New("connection refused")),
		"credentials":                                 of(401, errors.New("401")),
		"answers 503":                                 of(503, errors.New("503")),
		"check the clock of the node":                 verification(x509.CertificateInvalidError{Reason: x509.Expired}),
		"add the certificate authority to the system": verification(x509.UnknownAuthorityError{}),
		"hosts.toml of r1 ":                           verification(x509.CertificateInvalidError{Reason: x509.TooManyIntermediates}),
		"correct what the message names":              errors.New("something else"),
	} {
		assert.Contains(t, remedyOf(err)+" ", remedy)
	}
}
