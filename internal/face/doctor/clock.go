// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

const (
	// drift is what registries leave to the clocks of others: distribution takes
	// tokens that are a minute early or late (registry/auth/token.Leeway).
	drift = time.Minute
	// buildDrift is how far the clock of who built this may have been ahead.
	buildDrift = 24 * time.Hour
)

// born is when this program's first version was written.
var born = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// builtAt is the time of the commit that this was built from; born where the build
// does not say.
func builtAt() time.Time {
	info, known := debug.ReadBuildInfo()
	if !known {
		return born
	}
	for _, s := range info.Settings {
		if s.Key != "vcs.time" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, s.Value); err == nil && at.After(born) {
			return at
		}
	}
	return born
}

// dates collects how far the clocks of hosts are ahead of ours, from the Date of
// their answers (RFC 9110, 6.6.1).
type dates struct {
	mu    sync.Mutex
	ahead map[string]time.Duration // by host
}

// wrap puts the collector on the wire.
func (d *dates) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			d.note(req.URL.Host, resp.Header, time.Now())
		}
		return resp, err
	})
}

// note takes an answer's Date. A cache in between gives the age of the answer.
func (d *dates) note(host string, header http.Header, now time.Time) {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	if age, err := strconv.Atoi(header.Get("Age")); err == nil && age > 0 {
		at = at.Add(time.Duration(age) * time.Second)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ahead == nil {
		d.ahead = map[string]time.Duration{}
	}
	d.ahead[host] = at.Sub(now)
}

// check compares our clock with build and hosts. One host that agrees is enough:
// then it is the others that are wrong.
func (d *dates) check(now, built time.Time) Finding {
	const check = "clock"
	const remedy = "set the clock and keep it synchronized (timedatectl set-ntp true): certificates " +
		"and tokens depend on it"
	it := now.UTC().Format(time.RFC3339)
	if now.Add(buildDrift).Before(built) {
		err := fmt.Errorf("the clock shows %s, before this program was built (%s)", it, built.UTC().Format(time.RFC3339))
		return fail(check, err, remedy)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	nearest, least := "", time.Duration(0)
	for host, ahead := range d.ahead {
		if nearest == "" || ahead.Abs() < least.Abs() || ahead.Abs() == least.Abs() && host < nearest {
			nearest, least = host, ahead
		}
	}
	if least.Abs() <= drift {
		return ok(check, it)
	}
	way := "behind"
	if least < 0 {
		way = "ahead of"
	}
	detail := fmt.Sprintf("the clock shows %s, %s %s the clock of %s", it, least.Abs().Round(time.Second), way, nearest)
	return warn(check, detail, remedy)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
